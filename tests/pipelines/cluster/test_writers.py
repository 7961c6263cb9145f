"""How many tasks may connect to the database at once. That no more do so: tests/pipelines/batch/test_sink_plan.py."""

import pytest
from psycopg import sql

from tidegauge.pipelines.connections import MOST_WRITERS, Writers, divide_writers, rounds, writer_limit
from tidegauge.pipelines.errors import RuntimeSetupError


@pytest.mark.parametrize(
    ("limit", "states", "shared"),
    [
        (32, 1, Writers(states=1, partitions=32)),
        (32, 4, Writers(states=4, partitions=8)),
        (32, 5, Writers(states=5, partitions=6)),
        (4, 4, Writers(states=4, partitions=1)),
        (4, 10, Writers(states=4, partitions=1)),
        (1, 3, Writers(states=1, partitions=1)),
    ],
)
def test_states_are_fed_at_once_first_and_partitions_share_the_rest(limit, states, shared):
    assert divide_writers(limit, states) == shared


def test_the_product_never_exceeds_the_limit_and_every_state_has_a_writer():
    for limit in range(1, 70):
        for states in range(1, 70):
            shared = divide_writers(limit, states)
            assert 1 <= shared.states * shared.partitions <= limit


def test_states_that_cannot_be_fed_at_once_come_in_rounds():
    assert list(rounds(["a", "b", "c", "d", "e"], 2)) == [(["a", "b"], 1), (["c", "d"], 1), (["e"], 1)]
    assert list(rounds(["a", "b"], 32)) == [(["a", "b"], 16)]


def test_the_server_decides_if_the_variable_is_not_set(conn):
    most = int(conn.execute("SHOW max_connections").fetchone()[0])

    assert writer_limit(conn, {}) == min(MOST_WRITERS, (most - 3) // 2)
    assert writer_limit(conn, {"TIDEGAUGE_MAX_WRITERS": "7"}) == 7


@pytest.mark.parametrize(("allowed", "limit"), [(9, 4), (1, 1)])
def test_a_limit_of_the_database_counts_too(conn, database_url, allowed, limit):
    name = sql.Identifier(conn.info.dbname)
    conn.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT {}").format(name, sql.Literal(allowed)))
    try:
        assert writer_limit(conn, {}) == limit
    finally:
        conn.execute(sql.SQL("ALTER DATABASE {} CONNECTION LIMIT -1").format(name))


@pytest.mark.parametrize("given", ["0", "-1", "many", "1.5"])
def test_an_invalid_number_of_writers_is_refused_with_a_remedy(conn, given):
    with pytest.raises(RuntimeSetupError) as refused:
        writer_limit(conn, {"TIDEGAUGE_MAX_WRITERS": given})

    assert str(refused.value) == f"TIDEGAUGE_MAX_WRITERS: {given!r} is not a number of writers; set it to 1 or more"
