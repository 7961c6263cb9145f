"""Standing of a replica: whether it may answer, and how far it is behind, judged by what it and the primary say.

The lag is not read from the replica's clock: after each check the position of the primary's log is kept with the time
of asking, and a replica has everything that was committed before the newest position that it has replayed. So an idle
primary makes no lag, and a replica that no longer receives the log has one, although it has replayed all that it got.
"""

import time
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from tidegauge.state_backends.ledger.epochs import DATABASE, QUERIES, SYSTEM, UNKNOWN, server_identity

# What a server is that never changes while it is the same cluster; the timeline does, and cannot be asked in recovery.
IDENTITY = {name: QUERIES[name] for name in (SYSTEM, DATABASE)}

# Flushed, because a standby gets no more than that.
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

# At one check a second, an hour.
KEPT_POSITIONS = 3_600


@dataclass(frozen=True)
class Facts:
    """asked_at: on the monotonic clock, before the server was asked. position: of the log, written or replayed.

    timeline: the primary's; of a standby the one that it receives, None where it receives none or may not tell.
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
    """reason: why a replica is left out; empty: it answers. lag_seconds: None: not known. checked_at: monotonic."""

    name: str
    reason: str
    lag_seconds: float | None = None
    checked_at: float = 0.0

    @property
    def is_used(self) -> bool:
        return not self.reason


def facts(conn: psycopg.Connection, identity: dict[str, str] | None = None) -> Facts:
    """Ask a server. identity: of this connection, where it was read before."""
    asked_at = time.monotonic()
    server: Any = conn.execute(SERVER).fetchone()
    is_standby, position, clock, written, received = server
    identity = server_identity(conn, IDENTITY) if identity is None else identity
    return Facts(asked_at, is_standby, int(position or 0), clock, *_ledger(conn), written or received, identity)


def _ledger(conn: psycopg.Connection) -> tuple[int, str]:
    """Return the version of the ledger's tables, 0 where there are none, and the newest epoch."""
    try:
        row: Any = conn.execute(LEDGER).fetchone()
    except psycopg.errors.UndefinedTable:
        return 0, ""
    return row[0] or 0, row[1]


class LogPositions:
    """Where the primary's log was at each check, and from that the lag of a replica."""

    def __init__(self) -> None:
        self._kept: deque[Facts] = deque(maxlen=KEPT_POSITIONS)

    @property
    def newest(self) -> Facts | None:
        return self._kept[-1] if self._kept else None

    def add(self, primary: Facts) -> None:
        last = self.newest
        if last and (last.timeline != primary.timeline or last.position > primary.position):
            # Another server, or the same one after it went back: positions of before mean something else.
            self._kept.clear()
        self._kept.append(primary)

    def lag_seconds(self, replica: Facts) -> float | None:
        """Return for how long a replica may lack what was committed; None: since before the first check.

        It grows while the primary does not answer.
        """
        reached = next((kept.asked_at for kept in reversed(self._kept) if kept.position <= replica.position), None)
        return None if reached is None else replica.asked_at - reached


def judge(replica: Facts, positions: LogPositions, most_seconds: float) -> tuple[str, float | None]:
    """Return why a replica must not answer, empty if it may, and its lag. most_seconds: the largest lag that it may."""
    primary = positions.newest
    if primary is None:
        return "the primary has not answered yet, so nothing tells whose replica this is", None
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
            return f"it is of another cluster: its {what} is {is_now}, the primary's is {primary.identity[name]}"
    if replica.timeline not in (None, primary.timeline):
        return f"it follows timeline {replica.timeline} and the primary writes {primary.timeline}: it follows another"
    return ""


def _behind(replica: Facts, primary: Facts, lag: float | None, silent: float, most_seconds: float) -> str:
    if replica.schema != primary.schema:
        return f"its tables are of version {replica.schema}, the primary's of {primary.schema}"
    if replica.epoch != primary.epoch:
        return f"its ledger is of epoch {replica.epoch!r}, the primary's of {primary.epoch!r}"
    skew = (replica.clock - primary.clock).total_seconds() - silent
    if abs(skew) > max(most_seconds, 1.0):
        return f"its clock differs from the primary's by {skew:.1f} s, and what expires goes by the clock"
    if lag is None:
        return "it has not replayed yet what the primary had at the first check"
    if lag > most_seconds:
        unasked = "; the primary does not answer" if silent > most_seconds else ""
        return f"it is {lag:.1f} s behind, more than {most_seconds:g} s{unasked}"
    return ""
