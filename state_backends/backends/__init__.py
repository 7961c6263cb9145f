"""Backends: one folder or file per store, with everything that it owes to the rest, and one line here."""

from typing import TYPE_CHECKING

from state_backends.protocols import BACKENDS

if TYPE_CHECKING:
    import psycopg

    from state_backends.reader.reader import Reader
    from state_backends.spec import StateSpec

# Name to the class, by its name, because a backend is loaded when it is first used.
REGISTERED = {
    "postgres": "state_backends.backends.postgres.backend.PostgresBackend",
    "redis": "state_backends.backends.redis.backend.RedisBackend",
}


def state_reader(conn: "psycopg.Connection", spec: "StateSpec") -> "Reader":
    """Return what reads a state where it lives. conn: to the ledger's database, which has the changelog, too."""
    from state_backends.backends.postgres.reader import StateReader

    past = StateReader(conn, spec) if spec.changelog else None
    return BACKENDS[spec.backend].reader(conn, spec, past)
