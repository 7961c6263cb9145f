"""The factory: which class keeps the rows of a state, which map gives them their kind, and which reader answers."""

from collections.abc import Callable

import psycopg

from state_backends.backends.memory import MemoryBackingMap
from state_backends.backends.postgres.reader import StateReader
from state_backends.backends.postgres.rows import PostgresBackingMap
from state_backends.backends.redis.rows import RedisBackingMap
from state_backends.backends.redis.scripts import Client
from state_backends.maps import MAPS as MAPS
from state_backends.maps.batch_map import BatchMap
from state_backends.protocols import IBackingMap
from state_backends.reader.scanning import ScanningReader
from state_backends.spec import StateSpec

BACKENDS = {"memory": MemoryBackingMap, "postgres": PostgresBackingMap, "redis": RedisBackingMap}

Reader = StateReader | ScanningReader


def state_map(spec: StateSpec, conn: psycopg.Connection | None = None) -> BatchMap:
    """Return the map of the spec's kind, over PostgreSQL where a connection is given, else in memory."""
    backing: IBackingMap = MemoryBackingMap(spec) if conn is None else PostgresBackingMap(conn, spec)
    return MAPS[spec.kind](backing)


def state_reader(conn: psycopg.Connection, spec: StateSpec, client: Callable[[], Client]) -> Reader:
    """Return what reads a state where it lives.

    conn: a connection to the ledger's database. client: gives a client of the Redis that states live in, and is asked
    only for those.
    """
    if spec.backend == "redis":
        return ScanningReader(conn, spec, RedisBackingMap(client(), spec))
    return StateReader(conn, spec)
