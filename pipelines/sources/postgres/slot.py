"""A replication slot and its publication: with them PostgreSQL keeps a table's changes until they are counted.

Changes are peeked at, which consumes nothing; only `advance` lets PostgreSQL forget them.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from tidegauge.pipelines.errors import InputLostError, SourceSetupError
from tidegauge.pipelines.sources.postgres.pgoutput import as_number, as_text
from tidegauge.pipelines.sources.postgres.table import Table, check_identity
from tidegauge.state_backends.session import CLIENT, TCP

T = TypeVar("T")

# How long to wait for a slot that is being read, because a task of a killed driver may take a while to notice.
MAX_WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.1
ROWS_PER_FETCH = 1_000
COMMIT_TAG = 67  # C

# So that the text of a value can be read back as the same value, whatever the server's settings.
SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "idle_in_transaction_session_timeout": "10min",
}

SLOT = """
SELECT plugin, database = current_database(), wal_status, invalidation_reason, confirmed_flush_lsn, active_pid,
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), pg_current_wal_insert_lsn()
  FROM pg_replication_slots WHERE slot_name = %s
"""
# Ids of the server's data, the database and the table; of the table, because a recreated one is in no publication.
IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()),
       (SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass(%s)::oid
"""
MESSAGES = "pg_logical_slot_peek_binary_changes(%s, %s, %s, 'proto_version', '1', 'publication_names', %s)"
START_AGAIN = "start again: drop what is left with PostgresChanges.drop(), and run the pipeline with --reprocess"


@dataclass(frozen=True)
class SlotState:
    """confirmed: the LSN up to which changes may be forgotten. retained_bytes: how much log the slot keeps.

    log_end: where the server's log ends.
    """

    confirmed: int
    retained_bytes: int
    log_end: int


def connect(url: str, name: str) -> psycopg.Connection:
    """Open a connection in autocommit mode. Raises SourceSetupError if `url` is invalid."""
    # With TCP, so that the server releases the slot of a reader that vanishes.
    options = " ".join(f"-c {setting}={value}" for setting, value in {**SESSION, **TCP}.items())
    try:
        return psycopg.connect(
            url,
            autocommit=True,
            application_name=f"tidegauge {name}"[:63],
            options=options,
            connect_timeout=10,
            **CLIENT,
        )
    except psycopg.ProgrammingError:
        # Without the cause, because it may quote a part of the URL, and so of the password.
        raise SourceSetupError(
            f"slot {name!r}: the URL of the database to read from is invalid; see DATABASE_URL"
        ) from None


class Slot:
    """The slot and the publication of one stream of changes. conn: in autocommit mode."""

    def __init__(self, conn: psycopg.Connection, name: str, publication: str) -> None:
        self._conn = conn
        self.name = name
        self.publication = publication

    def state(self) -> SlotState | None:
        """Return the slot's state, None if it does not exist yet. Raises InputLostError if it was invalidated."""
        row = self._conn.execute(SLOT, [self.name]).fetchone()
        if row is None:
            return None
        plugin, is_ours, status, reason, confirmed, _pid, retained, end = row
        if confirmed is None and reason is None:
            return None  # it is being created, which waits for running transactions
        if plugin != "pgoutput" or not is_ours:
            raise SourceSetupError(
                f"slot {self.name!r}: belongs to another database or to plugin {plugin!r}; choose another slot"
            )
        if status == "lost" or reason is not None:
            raise InputLostError(
                f"slot {self.name!r}: PostgreSQL has invalidated it ({reason or status}; see max_slot_wal_keep_size), "
                f"and removed the changes since {confirmed}; {START_AGAIN}"
            )
        return SlotState(as_number(confirmed), int(retained), as_number(end))

    def check(self, read_up_to: int) -> None:
        """Raise InputLostError unless the slot has every change after an LSN."""
        state = self.state()
        if state is None:
            raise InputLostError(
                f"slot {self.name!r}: was dropped, and with it the changes since {as_text(read_up_to)}; {START_AGAIN}"
            )
        if state.confirmed > read_up_to:
            raise InputLostError(
                f"slot {self.name!r}: is at {as_text(state.confirmed)}, but this pipeline has read only up to "
                f"{as_text(read_up_to)}: another reader uses it too; give each its own slot, and {START_AGAIN}"
            )
        if state.log_end < read_up_to:
            raise InputLostError(
                f"slot {self.name!r}: the server's log ends at {as_text(state.log_end)}, but this pipeline has read "
                f"up to {as_text(read_up_to)}: the server was restored, or a standby without the end of the log was "
                f"promoted, so changes that were counted do not exist there; {START_AGAIN}"
            )

    def create(self, table: Table, *, truncates: bool) -> None:
        """Create the publication and the slot if they do not exist."""
        self._require_logical_log()
        # Before the slot, because changes written before the publication exists cannot be decoded for it.
        if not self._conn.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication]).fetchone():
            self._publish(table)
        self._check_publication(table, truncates=truncates)
        if self.state() is None:
            self._conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.name])

    def _require_logical_log(self) -> None:
        [level] = self._conn.execute("SELECT current_setting('wal_level')").fetchone() or [None]
        if level != "logical":
            raise SourceSetupError(
                f"slot {self.name!r}: the server's wal_level is {level!r}, and changes need 'logical'; "
                "ALTER SYSTEM SET wal_level = logical, and restart it"
            )

    def _publish(self, table: Table) -> None:
        check_identity(self._conn, table)
        self._conn.execute(
            sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)").format(
                sql.Identifier(self.publication), table.identifier
            )
        )

    def _check_publication(self, table: Table, *, truncates: bool) -> None:
        row = self._conn.execute(
            "SELECT pubinsert AND pubupdate AND pubdelete AND (pubtruncate OR NOT %s), t.tablename IS NOT NULL, "
            "t.rowfilter IS NULL, t.attnames::text[] @> %s FROM pg_publication p LEFT JOIN pg_publication_tables t "
            "ON t.pubname = p.pubname AND t.schemaname = %s AND t.tablename = %s WHERE p.pubname = %s",
            [truncates, list(table.columns), table.schema, table.name, self.publication],
        ).fetchone()
        if row is None or not all(row):
            raise SourceSetupError(
                f"publication {self.publication!r} does not publish every change of all columns of table "
                f"{str(table)!r}; alter it, or choose a new name, for which a publication is then created"
            )

    def commits(self, up_to: int | None, at_least: int) -> list[tuple[int, int]]:
        """Peek at about `at_least` messages; return (their number so far, LSN) of each commit among them."""
        query = sql.SQL(
            f"SELECT n, lsn FROM {MESSAGES} WITH ORDINALITY AS m (lsn, xid, data, n) "  # noqa: S608  constants
            f"WHERE get_byte(data, 0) = {COMMIT_TAG}"
        )
        found = self._when_free(lambda: self._conn.execute(query, self._peek(up_to, at_least)).fetchall())
        return [(number, as_number(lsn)) for number, lsn in found]

    def messages(self, up_to: int) -> Iterator[tuple[int, bytes]]:
        """Peek at what was committed before an LSN, transaction by transaction; yield (LSN, message)."""
        first, others = self._when_free(lambda: self._stream(up_to))
        for lsn, message in chain(first, others):
            yield int.from_bytes(lsn), message

    def _stream(self, up_to: int) -> tuple[list[Any], Iterator[Any]]:
        query = sql.SQL(f"SELECT lsn, data FROM {MESSAGES}")  # noqa: S608  constants
        rows = self._conn.cursor().stream(query, self._peek(up_to, None), binary=True, size=ROWS_PER_FETCH)
        # The first row is fetched here, because that starts the query, so that `_when_free` can retry it.
        return list(islice(rows, 1)), rows

    def _peek(self, up_to: int | None, at_least: int | None) -> list[Any]:
        quoted = '"' + self.publication.replace('"', '""') + '"'
        return [self.name, None if up_to is None else as_text(up_to), at_least, quoted]

    def advance(self, up_to: int) -> None:
        """Let PostgreSQL forget what was committed before an LSN. Never goes back."""
        state = self.state()
        if state is not None and state.confirmed < up_to:
            query = "SELECT pg_replication_slot_advance(%s, %s)"
            self._when_free(lambda: self._conn.execute(query, [self.name, as_text(up_to)]))

    def drop(self) -> None:
        """Drop slot and publication if they exist."""
        if self._conn.execute(SLOT, [self.name]).fetchone():
            self._when_free(lambda: self._conn.execute("SELECT pg_drop_replication_slot(%s)", [self.name]))
        self._conn.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self.publication)))

    def _when_free(self, attempt: Callable[[], T]) -> T:
        """Retry while another reader uses the slot, for MAX_WAIT_SECONDS."""
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while True:
            try:
                return attempt()
            except psycopg.errors.ObjectInUse as error:
                if time.monotonic() > deadline:
                    raise SourceSetupError(
                        f"slot {self.name!r}: another reader has been using it for {MAX_WAIT_SECONDS:.0f} s "
                        f"({error}); give each pipeline its own slot, and end the tasks of stopped drivers"
                    ) from error
                time.sleep(PAUSE_SECONDS)


def log_end(conn: psycopg.Connection) -> tuple[int, bool]:
    """Return an LSN between two records at the end of the log, and whether all before it can be decoded yet."""
    row = conn.execute("SELECT l, l <= pg_current_wal_flush_lsn() FROM pg_current_wal_insert_lsn() AS l").fetchone()
    assert row is not None
    return as_number(row[0]), row[1]
