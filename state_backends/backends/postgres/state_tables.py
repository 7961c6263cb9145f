"""Shadows, swaps and indexes of the tables of a state, for PostgresBackend. See StateTables."""

from collections.abc import Iterable, Iterator

import psycopg

from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.backends.postgres.timers import Timers
from tidegauge.state_backends.maintenance import vacuum
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable


class PostgresTables:
    def check_names(self, conn: psycopg.Connection, spec: StateSpec, beside: Iterable[StateSpec]) -> None:
        declared = {other.name: other.partitions for other in beside if other.backend == spec.backend}
        tables.check_names(spec, Catalog(conn).partitions(spec.backend) | declared)

    def check_replaceable(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> None:
        tables.check_replaceable(conn, StateTable(old), StateTable(new))

    def create_shadow(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        shadow = StateTable(spec).shadow()
        tables.drop_rows(conn, shadow)
        tables.create_rows(conn, shadow)

    def copy(self, conn: psycopg.Connection, old: StateSpec, new: StateSpec) -> Iterator[int]:
        return tables.copy_rows(conn, StateTable(old), StateTable(new))

    def drop_shadow(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        tables.drop_rows(conn, StateTable(spec).shadow())

    def swap(self, conn: psycopg.Connection, old: StateSpec | None, new: StateSpec, *, keep: bool = False) -> None:
        tables.swap(conn, _table(old), StateTable(new), keep=keep)

    def swap_kept(self, conn: psycopg.Connection, current: StateSpec | None, old: StateSpec | None) -> None:
        tables.put_back(conn, _table(current), _table(old))

    def drop_kept(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        tables.drop_rows(conn, StateTable(spec).kept())

    def index_timers(self, conn: psycopg.Connection, spec: StateSpec, due: str, *, shadow: bool = False) -> None:
        Timers(conn, StateTable(spec).shadow() if shadow else StateTable(spec), due).index()

    def vacuum(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        vacuum(conn, StateTable(spec).name)


def _table(spec: StateSpec | None) -> StateTable | None:
    return None if spec is None else StateTable(spec)
