"""Backends: one folder or file per store, with everything that it owes to the rest, and one line here."""

from typing import TYPE_CHECKING

from tidegauge.state_backends.protocols import BACKENDS

if TYPE_CHECKING:
    import psycopg

    from tidegauge.state_backends.reader.reader import Reader
    from tidegauge.state_backends.spec.state_spec import StateSpec

# Name to the class, by its name, because a backend is loaded when it is first used.
REGISTERED = {
    "postgres": "tidegauge.state_backends.backends.postgres.backend.PostgresBackend",
    "redis": "tidegauge.state_backends.backends.redis.backend.RedisBackend",
}


def state_reader(conn: "psycopg.Connection", spec: "StateSpec") -> "Reader":
    """Return what reads a state where it lives. conn: to the ledger's database, which has the changelog, too."""
    from tidegauge.state_backends.backends.postgres.reader import StateReader

    past = StateReader(conn, spec) if spec.changelog else None
    return BACKENDS[spec.backend].reader(conn, spec, past)
