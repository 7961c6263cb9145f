"""Live: the one definition of when a version counts, shared by readers, merge, expiry and compaction.

A version is live while it is not a tombstone and its time to live has not run out at the asker's clock: the
database's now for readers, the batch time for the merge. The SQL and the Python form are one rule; a test holds
them together.
"""

from datetime import datetime, timedelta
from typing import LiteralString

from psycopg import sql


def is_live(removed: bool, updated_at: datetime, ttl: timedelta | None, clock: datetime) -> bool:
    return not removed and (ttl is None or clock - updated_at < ttl)


def live_sql(table: str, ttl: sql.Composable, clock: sql.Composable, version: LiteralString = "") -> sql.Composed:
    """Return the predicate over one version of a row; version `prev_` asks about the one before."""
    return sql.SQL("tidemark.is_live({removed}, {updated_at}, {ttl}, {clock})").format(
        removed=sql.Identifier(table, f"{version}removed"),
        updated_at=sql.Identifier(table, f"{version}updated_at"),
        ttl=ttl,
        clock=clock,
    )
