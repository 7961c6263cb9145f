"""The PostgreSQL backend: a state is a table in the ledger's database, so one transaction covers rows and ledger."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg

from tidegauge.state_backends.backends.postgres import maintenance, rewind, tables
from tidegauge.state_backends.backends.postgres.export import split_keys
from tidegauge.state_backends.backends.postgres.reader import StateReader
from tidegauge.state_backends.backends.postgres.rows import PostgresBackingMap
from tidegauge.state_backends.backends.postgres.session import PostgresSession
from tidegauge.state_backends.backends.postgres.state_tables import PostgresTables
from tidegauge.state_backends.backends.postgres.tiles import compact_tiles
from tidegauge.state_backends.errors import RebuildingError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.maintenance import Horizon, Step, table_sizes
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable


class PostgresBackend:
    """See Backend. The ledger's connection is the store's, so its errors are psycopg's, as the ledger's are."""

    title = "PostgreSQL"
    has_partitions = True
    tables = PostgresTables()
    archive = None  # because its rows are part of the database's dump
    timeout_seconds: float | None = None

    def check(self) -> None:
        """Nothing to check: a process that reaches the ledger reaches the states."""

    def rows(self, conn: psycopg.Connection, spec: StateSpec) -> PostgresBackingMap:
        return PostgresBackingMap(conn, spec)

    def session(
        self, conn: psycopg.Connection, spec: StateSpec, batch: Batch, *, shadow: bool = False
    ) -> PostgresSession:
        return PostgresSession(conn, spec, batch, shadow=shadow)

    def reader(self, conn: psycopg.Connection, spec: StateSpec, past: Reader | None) -> StateReader:
        return StateReader(conn, spec)

    def loop_rows(self, spec: StateSpec) -> None:
        return None

    def committed_values(
        self, conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
    ) -> list[Any]:
        # What a batch after the committed one would build on is what is committed.
        values = MAPS[spec.kind](PostgresBackingMap(conn, spec))
        values.begin_commit(txid + 1, at=at)
        return values.multi_get(keys)

    def check_new(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        """Nothing to check: `create` refuses a name that is taken."""

    def create(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        tables.create(conn, StateTable(spec))

    def drop(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        tables.drop(conn, StateTable(spec))

    def rename(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        tables.rename(conn, StateTable(old), StateTable(new))

    def begin_copy(self, conn: psycopg.Connection, spec: StateSpec) -> PostgresBackingMap:
        self.tables.create_shadow(conn, replace(spec, changelog=False))
        return PostgresBackingMap(conn, spec, StateTable(spec).shadow())

    def end_copy(self, conn: psycopg.Connection, spec: StateSpec, committed: int) -> None:
        tables.swap(conn, None, StateTable(replace(spec, changelog=False)))

    def is_copying(self, spec: StateSpec) -> bool:
        return True  # a shadow, which is made again

    def holds(self, spec: StateSpec) -> bool:
        return False

    def add_measures(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        tables.add_columns(conn, StateTable(old), StateTable(new))

    def catch_up(self, conn: psycopg.Connection, spec: StateSpec, start: Batch, *, is_new: bool) -> str:
        """Nothing to compare: the rows go back with the ledger. Raises RebuildingError."""
        if found := findings.recorded_finding(conn, spec.name):
            raise RebuildingError(found, spec.name)
        return ""

    def expire(self, conn: psycopg.Connection, spec: StateSpec) -> Iterator[Step]:
        return maintenance.expire(conn, spec)

    def compact(self, conn: psycopg.Connection, spec: StateSpec, horizon: Horizon) -> Iterator[Step]:
        yield from maintenance.compact(conn, StateTable(spec), horizon)
        if spec.tiling is not None:
            yield from compact_tiles(conn, spec)

    def sizes(self, conn: psycopg.Connection, spec: StateSpec) -> tuple[int, int]:
        return table_sizes(conn, StateTable(spec).name)

    def split_keys(self, conn: psycopg.Connection, spec: StateSpec, parts: int) -> list[Key]:
        return split_keys(conn, StateTable(spec), parts) if spec.key else []

    def begin_rebuild(self, conn: psycopg.Connection, spec: StateSpec, *, goes_on: bool) -> None:
        """Nothing to do: rows are replaced range by range."""

    def check_one_back(self, conn: psycopg.Connection, spec: StateSpec, to: int) -> None:
        """Nothing to do: the rows went wherever the ledger did."""

    def take_back(self, conn: psycopg.Connection, spec: StateSpec, to: int) -> None:
        rewind.take_back(conn, StateTable(spec), to)

    def end_rebuild(self, conn: psycopg.Connection, spec: StateSpec, committed: int) -> None:
        """Nothing to do: the ledger's row is what readers go by."""
