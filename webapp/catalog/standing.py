"""Standing of a replica: whether it may answer and how far it is behind, by what it and the primary report.

The lag is not read from the replica's clock. Each check keeps the position of the primary's log with the time of the
question, and a replica has everything that was committed before the newest of these positions that it has replayed. So
an idle primary causes no lag, and a replica that no longer receives the log lags, although it has replayed all it got.
"""

import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from tidegauge.state_backends.ledger.epochs import DATABASE, QUERIES, SYSTEM, UNKNOWN, server_identity

# Facts that never change in a cluster. The timeline is not among them: it can change, and a standby cannot be asked.
IDENTITY = {name: QUERIES[name] for name in (SYSTEM, DATABASE)}

# The primary's flushed position, because a standby receives no more than what is flushed.
SERVER = """
SELECT pg_is_in_recovery(),
    CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END - '0/0'::pg_lsn,
    clock_timestamp(),
    CASE WHEN NOT pg_is_in_recovery() THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END,
    (SELECT received_tli FROM pg_stat_wal_receiver)
"""

LEDGER = """
SELECT (SELECT max(number) FROM tidegauge.schema_version),
    coalesce((SELECT epoch FROM tidegauge.epoch ORDER BY number DESC LIMIT 1), '')
"""

# One hour, at one check a second.
KEPT_POSITIONS = 3_600


@dataclass(frozen=True)
class Facts:
    """asked_at: on the monotonic clock, before the server was asked. position: in the log, flushed or replayed.

    timeline: the one that a primary writes or a standby receives; None if it receives none or we may not see it.
    """

    asked_at: float
    is_standby: bool
    position: int
    clock: datetime
    schema: int
    epoch: str
    timeline: int | None
    identity: dict[str, str]


@dataclass(frozen=True)
class Standing:
    """reason: why a replica is left out; empty: it answers. lag_seconds: None: unknown. checked_at: monotonic clock."""

    name: str
    reason: str
    lag_seconds: float | None = None
    checked_at: float = 0.0

    @property
    def is_used(self) -> bool:
        return not self.reason


def facts(conn: psycopg.Connection, identity: dict[str, str] | None = None) -> Facts:
    """Ask a server for its facts. identity: what this connection has read before; None: read it."""
    asked_at = time.monotonic()
    server: Any = conn.execute(SERVER).fetchone()
    is_standby, position, clock, written, received = server
    identity = server_identity(conn, IDENTITY) if identity is None else identity
    return Facts(asked_at, is_standby, int(position or 0), clock, *_ledger(conn), written or received, identity)


def _ledger(conn: psycopg.Connection) -> tuple[int, str]:
    """Return the version of the ledger's tables, 0 if there are none, and the newest epoch."""
    try:
        row: Any = conn.execute(LEDGER).fetchone()
    except psycopg.errors.UndefinedTable:
        return 0, ""
    return row[0] or 0, row[1]


class LogPositions:
    """The positions of the primary's log at each check, from which the lag of a replica is computed."""

    def __init__(self) -> None:
        self._kept: deque[Facts] = deque(maxlen=KEPT_POSITIONS)

    @property
    def newest(self) -> Facts | None:
        return self._kept[-1] if self._kept else None

    def add(self, primary: Facts) -> None:
        last = self.newest
        if last and (last.timeline != primary.timeline or last.position > primary.position):
            # It is another server, or was restored to an earlier position, so earlier positions cannot be compared.
            self._kept.clear()
        self._kept.append(primary)

    def lag_seconds(self, replica: Facts) -> float | None:
        """Return the age of the oldest commit that a replica may lack; None: it is from before the first check.

        It grows while the primary does not answer.
        """
        reached = next((kept.asked_at for kept in reversed(self._kept) if kept.position <= replica.position), None)
        return None if reached is None else replica.asked_at - reached


def judge(replica: Facts, positions: LogPositions, most_seconds: float) -> tuple[str, float | None]:
    """Return why a replica must not answer, empty if it may, and its lag. most_seconds: the largest allowed lag."""
    primary = positions.newest
    if primary is None:
        return "the primary has not answered yet, so the replica cannot be compared with it", None
    silent = replica.asked_at - primary.asked_at
    lag = positions.lag_seconds(replica)
    return _other(replica, primary) or _behind(replica, primary, lag, silent, most_seconds), lag


def _other(replica: Facts, primary: Facts) -> str:
    if primary.is_standby:
        return "DATABASE_URL leads to a standby; it must lead to the primary"
    if not replica.is_standby:
        return "it is not a standby: it was promoted, or never followed the primary, so it may hold other data"
    for name, is_now in replica.identity.items():
        if UNKNOWN not in (is_now, primary.identity[name]) and is_now != primary.identity[name]:
            what = "system identifier" if name == SYSTEM else f"identity ({name})"
            return f"it belongs to another cluster: its {what} is {is_now}, the primary's is {primary.identity[name]}"
    if replica.timeline not in (None, primary.timeline):
        return f"it follows timeline {replica.timeline}, but the primary writes timeline {primary.timeline}"
    return ""


def _behind(replica: Facts, primary: Facts, lag: float | None, silent: float, most_seconds: float) -> str:
    if replica.schema != primary.schema:
        return f"its tables have version {replica.schema}, the primary's have {primary.schema}"
    if replica.epoch != primary.epoch:
        return f"its ledger has epoch {replica.epoch!r}, the primary's has {primary.epoch!r}"
    skew = (replica.clock - primary.clock).total_seconds() - silent
    if abs(skew) > max(most_seconds, 1.0):
        return f"its clock differs from the primary's by {skew:.1f} s, and rows expire by the clock"
    if lag is None:
        return "it has not yet replayed what the primary had at the first check"
    if lag > most_seconds:
        unasked = "; the primary does not answer" if silent > most_seconds else ""
        return f"it is {lag:.1f} s behind, more than {most_seconds:g} s{unasked}"
    return ""
