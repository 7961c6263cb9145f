"""What PostgresBackingMap does beside its contract: it creates its table where it is asked to."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from tests.contracts.backing_map import BackingMapContract
from tidegauge.state_backends import PostgresBackingMap, StateSpec, Versioned

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


class TestPartitionedState(BackingMapContract):
    @pytest.fixture
    def new_backing(self, conn, fresh):
        return lambda spec: PostgresBackingMap(conn, replace(fresh(spec), partitions=4 if spec.key else 1), create=True)
