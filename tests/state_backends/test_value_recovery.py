"""The SQL of docs/recovery.md about values that cannot be counted, and about slow recovery."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.recovery_page import message_of, statements
from tests.state_backends.feed import Feed, arrow
from tidegauge.state_backends import Count, PostgresBackingMap, StateSpec, Sum
from tidegauge.state_backends.dead_letters.letters import write_dead_letters

WORDS = StateSpec("words", key={"word": "text"}, measures={"n": Count(), "total": Sum("x", type="bigint")})


@pytest.fixture(scope="module")
def installed_url(own_url):
    """A database of its own: the query lists the dead letters of every pipeline."""
    return own_url


def test_values_that_cannot_be_counted_are_listed_with_their_reason(conn, fresh):
    spec = fresh(WORDS)
    feed = Feed(conn, [spec], pipeline="values")
    backing = PostgresBackingMap(conn, spec)
    batch = feed.begin(0)
    for txid, total in ((1, 2**63 - 1), (2, 1)):
        with conn.transaction():
            backing.merge(arrow([{"word": "a", "n": 1, "total": total}]), txid, datetime.now(UTC))
    with conn.transaction():
        write_dead_letters(conn, batch, backing.refused, state=spec.name)

    [look] = statements("Values that cannot be counted")
    found = conn.execute(look).fetchone()

    assert found[1:3] == (spec.name, '{"word": "a", "n": 1, "total": 1}')
    assert re.fullmatch(message_of("Values that cannot be counted", 3), found[3])


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_table_of_before_gets_an_index_with_a_range_per_page(conn, fresh, partitions):
    spec = fresh(replace(WORDS, partitions=partitions))
    PostgresBackingMap(conn, spec, create=True)
    table = spec.name if partitions == 1 else f"{spec.name}_p0"

    [create] = statements("Reverting a batch takes long")

    conn.execute(create.replace("words", table))

    options = conn.execute(
        "SELECT c.reloptions FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE i.indrelid = to_regclass(%s) AND NOT i.indisprimary AND i.indisvalid",
        [f"tidegauge_state.{table}"],
    ).fetchall()
    assert options == [(["pages_per_range=1"],)] * 2
