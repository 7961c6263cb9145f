"""Session settings that Tidegauge's statements rely on, whatever the defaults of the role, the database or the server.

`ALTER ROLE .. SET` changes the defaults of every session. Some settings change how values are written as text and read
back, and others whether a committed batch survives a crash. Pipelines and the web application set them on their
connections; call `prepare` on a connection of your own before you pass it to the library.
"""

from typing import TYPE_CHECKING, Any

from tidegauge.state_backends.errors import ServerVersionError

if TYPE_CHECKING:
    import psycopg

# A host that vanishes closes no connection. So the server ends its session, which releases its locks, after 10 s with
# no packet and three probes 5 s apart, or 20 s after a packet that was not confirmed.
VANISHED_SECONDS = 30
KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
UNCONFIRMED_MS = 20_000

TCP = {f"tcp_{name}": str(value) for name, value in KEEPALIVES.items()} | {"tcp_user_timeout": str(UNCONFIRMED_MS)}

SETTINGS = {
    # A statement that waited for the ledger's row must see the new version, not the one from its transaction's start.
    "default_transaction_isolation": "read committed",
    # How values are written and read back: with fewer digits, rounded floats would be folded into stored totals.
    "extra_float_digits": "1",
    "IntervalStyle": "postgres",
    "DateStyle": "ISO, YMD",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "client_encoding": "UTF8",
    "transform_null_equals": "off",
    **TCP,
    # So that the server notices a lost client even while a statement runs.
    "client_connection_check_interval": "5s",
}

# The same for libpq, so that a server that vanishes is an error within VANISHED_SECONDS and not an endless wait.
CLIENT: dict[str, Any] = {**KEEPALIVES, "tcp_user_timeout": UNCONFIRMED_MS}

# Only if it is off, because the operator may have chosen a value that is stronger than `on`.
DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"

PREPARE = (
    "SELECT set_config(s.name, s.value, false) FROM unnest(%s::text[], %s::text[]) AS s (name, value) "
    "WHERE s.name <> 'synchronous_commit' OR current_setting(s.name) = 'off'"
)

# Since 16 an update of a column with a BRIN index can be HOT; the tables of states rely on it.
OLDEST_SERVER = 16

# Server settings with which a crash of the host can lose or damage committed data.
UNSAFE = "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name"


def connection_options(**more: str) -> str:
    """Return libpq's `options` with these settings and `more`, which take effect without a round trip."""
    return " ".join(f"-c {name}={_escaped(value)}" for name, value in {**SETTINGS, **more}.items())


def prepare(conn: "psycopg.Connection") -> None:
    """Set the settings in an open session, and make its commits durable; one round trip."""
    settings = {**SETTINGS, "synchronous_commit": "on"}
    conn.execute(PREPARE, [list(settings), list(settings.values())])


def check_version(version: int) -> None:
    """Raise ServerVersionError for a server that is too old. version: libpq's number, 160004 for 16.4."""
    if version < OLDEST_SERVER * 10_000:
        raise ServerVersionError(
            f"PostgreSQL {version // 10_000}.{version % 10_000}: Tidegauge needs {OLDEST_SERVER} or later; upgrade the "
            "server with pg_upgrade, or restore a dump of the database into a newer one"
        )


def unsafe_settings(conn: "psycopg.Connection") -> list[str]:
    """Return the names of the server's settings with which a crash of its host can lose committed batches."""
    return [name for (name,) in conn.execute(UNSAFE)]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
