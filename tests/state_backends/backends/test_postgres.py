"""What PostgresBackingMap does beside its contract: it creates its table where it is asked to."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from state_backends import PostgresBackingMap, StateSpec, Versioned

VIEWS = StateSpec("views", key={"page": "text"}, value="jsonb", changelog=True)


def test_a_state_without_a_table_cannot_be_read_unless_it_is_created(conn, fresh):
    spec = fresh(VIEWS)

    with pytest.raises(psycopg.errors.UndefinedTable):
        PostgresBackingMap(conn, spec).multi_get([("/home",)])

    assert PostgresBackingMap(conn, spec, create=True).multi_get([("/home",)]) == [None]


def test_a_table_that_exists_keeps_its_rows(conn, fresh):
    spec = fresh(VIEWS)
    PostgresBackingMap(conn, spec, create=True).multi_put([("/home",)], [Versioned(1, txid=1)])

    again = PostgresBackingMap(conn, spec, create=True)

    assert [row.value for row in again.multi_get([("/home",)])] == [1]


def test_of_several_creators_at_once_each_finds_the_table(connect, fresh):
    spec = fresh(VIEWS)
    connections = [connect() for _ in range(4)]

    with ThreadPoolExecutor(4) as threads:
        maps = list(threads.map(lambda conn: PostgresBackingMap(conn, spec, create=True), connections))

    assert [backing.multi_get([("/home",)]) for backing in maps] == [[None]] * 4


def test_a_partitioned_state_behaves_as_one(conn, fresh):
    spec = fresh(StateSpec("parted", key={"page": "text", "day": "bigint"}, value="jsonb", partitions=4))
    backing = PostgresBackingMap(conn, spec, create=True)
    keys = [(page, day) for page in "abcde" for day in range(5)]
    backing.multi_put(keys, [Versioned(n, 2, -n, 1) for n in range(25)])

    assert [row.value for row in backing.multi_get(keys[::-1])] == list(range(24, -1, -1))
    assert [key for key, _ in backing.scan()] == keys
    assert [key for key, _ in backing.scan(prefix=("c",), stop=("c", 2))] == [("c", 0), ("c", 1)]
    assert backing.revert(2) == 25
    backing.multi_remove(keys[1:])
    assert list(backing.scan()) == [(keys[0], Versioned(0, 1))]
