"""The table of a batch's rows stays in the session, empty between two transactions."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.state_backends.feed import arrow
from tidegauge.state_backends import Changelog, Count, PostgresBackingMap, StateSpec, Sum

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()}, changelog=True)
CATALOG = (
    "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_sys_tables "
    "WHERE relname IN ('pg_attribute', 'pg_class')"
)


@pytest.fixture
def backing(conn, fresh):
    return PostgresBackingMap(conn, fresh(VIEWS), create=True)


def merge(backing, txid, **views):
    rows = [{"page": page, "n": n} for page, n in views.items()]
    return backing.merge(arrow(rows), txid, datetime.now(UTC))


def values(backing, *pages):
    return [row.value["n"] for row in backing.multi_get([(page,) for page in pages])]


def catalog_writes(conn):
    conn.execute("SELECT pg_stat_force_next_flush()")
    conn.execute("SELECT pg_stat_clear_snapshot()")
    return conn.execute(CATALOG).fetchone()[0]


def test_a_batch_writes_nothing_to_the_catalog(conn, backing):
    with conn.transaction():
        merge(backing, 1, home=1)
    before = catalog_writes(conn)

    for txid in (2, 3):
        with conn.transaction():
            merge(backing, txid, home=1, docs=1)
            Changelog(conn, backing.spec).append(txid)

    assert catalog_writes(conn) == before
    assert values(backing, "home", "docs") == [3, 2]


def test_two_batches_of_one_transaction_do_not_mix(conn, backing):
    with conn.transaction():
        merge(backing, 1, home=1)
        merge(backing, 2, docs=5)

    assert values(backing, "home", "docs") == [1, 5]


def test_states_of_other_columns_do_not_meet(conn, fresh, backing):
    other = PostgresBackingMap(conn, fresh(replace(VIEWS, measures={"seconds": Sum("s", type="bigint")})), create=True)

    with conn.transaction():
        merge(backing, 1, home=1)
        other.merge(arrow([{"page": "home", "seconds": 7}]), 1, datetime.now(UTC))

    assert values(backing, "home") == [1]
    assert other.multi_get([("home",)])[0].value == {"seconds": 7}


def test_a_measure_that_is_added_gets_a_table_of_its_own(conn, backing):
    with conn.transaction():
        merge(backing, 1, home=1)
    conn.execute(f"ALTER TABLE tidegauge_state.{backing.spec.name} ADD COLUMN m bigint, ADD COLUMN prev_m bigint")
    wider = PostgresBackingMap(conn, replace(backing.spec, measures={"n": Count(), "m": Count()}))

    with conn.transaction():
        wider.merge(arrow([{"page": "home", "n": 1, "m": 4}]), 2, datetime.now(UTC))

    assert wider.multi_get([("home",)])[0].value["m"] == 4


def test_what_a_transaction_took_back_is_not_merged_with_the_next(conn, backing):
    with conn.transaction(force_rollback=True):
        merge(backing, 1, home=1)

    with conn.transaction():
        merge(backing, 1, docs=2)

    assert values(backing, "docs") == [2]
    assert backing.multi_get([("home",)]) == [None]
