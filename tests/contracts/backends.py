"""The backends: each is one line here, and every map and contract test then runs on it."""

from collections.abc import Callable

import psycopg

from state_backends import MemoryBackingMap, PostgresBackingMap, StateSpec
from state_backends.protocols import IBackingMap
from state_backends.schema import tables
from state_backends.table import StateTable

NewBacking = Callable[[StateSpec], IBackingMap]


def memory(conn: psycopg.Connection) -> NewBacking:
    return MemoryBackingMap


def postgres(conn: psycopg.Connection) -> NewBacking:
    def new_backing(spec: StateSpec) -> IBackingMap:
        tables.create(conn, StateTable(spec))
        return PostgresBackingMap(conn, spec)

    return new_backing


BACKENDS: dict[str, Callable[[psycopg.Connection], NewBacking]] = {"memory": memory, "postgres": postgres}
