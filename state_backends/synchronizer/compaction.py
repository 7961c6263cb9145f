"""Compaction of logs from outside: a log replaced by its current value, for clients that do not see to it or are gone.

Nothing that a client could need is touched: one that lies behind loads the state again from the mark.
"""

from contextlib import suppress

import psycopg

from state_backends.synchronizer import membership
from state_backends.synchronizer.copy import Apply
from state_backends.synchronizer.errors import ContentionError
from state_backends.synchronizer.revisioned_stream import RevisionedStream
from state_backends.synchronizer.synchronizer import StateSynchronizer

# The logs whose updates are known here. Of any other only its own clients can tell the current value.
APPLIES: dict[str, Apply] = {membership.NAME: membership.apply}


def compact_logs(conn: psycopg.Connection) -> dict[str, int]:
    """Compact every log there is. Returns the number of records dropped, by the log's name."""
    names = conn.execute("SELECT name FROM tidemark.synchronizer ORDER BY name").fetchall()
    return {name: compact_log(conn, name, APPLIES.get(name)) for (name,) in names}


def compact_log(conn: psycopg.Connection, name: str, apply: Apply | None = None) -> int:
    """Drop what is older than the newest compacted value, and return the number of records dropped.

    apply: what the updates mean, to write the current value first; without it the log's own clients must have done so.
    """
    if apply is not None:
        # A log in such demand is compacted by its own clients.
        with suppress(ContentionError):
            _write_current_value(StateSynchronizer(conn, name, apply))
    log = RevisionedStream(conn, name)
    return log.truncate(log.head().mark or 0)


def _write_current_value(synchronizer: StateSynchronizer) -> None:
    synchronizer.fetch_updates()
    if synchronizer.records_since_compaction:
        synchronizer.compact()
