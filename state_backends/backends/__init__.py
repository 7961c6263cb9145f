"""Backends: one folder or file per store, with everything that it owes to the rest, and one line here."""

import psycopg

from state_backends.backends.postgres.backend import PostgresBackend
from state_backends.backends.postgres.reader import StateReader
from state_backends.backends.redis.backend import RedisBackend
from state_backends.protocols import BACKENDS, Backend
from state_backends.reader.reader import Reader
from state_backends.spec import StateSpec

REGISTERED: dict[str, Backend] = {
    "postgres": PostgresBackend(),
    "redis": RedisBackend(),
}


def state_reader(conn: psycopg.Connection, spec: StateSpec) -> Reader:
    """Return what reads a state where it lives. conn: to the ledger's database, which has the changelog, too."""
    past = StateReader(conn, spec) if spec.changelog else None
    return BACKENDS[spec.backend].reader(conn, spec, past)
