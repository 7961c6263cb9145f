"""Batch time: the clock of a batch, from which every ttl is computed, and the checks that this clock is right.

A batch has the database's time. One batch under a clock that is a month ahead treats every key with a ttl as expired
and counts it again from nothing, and no later batch restores the totals. So the clock is compared with two others:

- The driver's clock. No batch begins while it and the database's differ by more than the allowed skew.
- The uptime of the driver's host, which no clock change affects. It detects a jump of a clock that database and driver
  share. A driver that has just started has nothing to compare with.

The time of the last batch may still be ahead if it ran under a wrong clock that has been corrected since. Only then do
batch times decrease, because a batch is never further ahead of the database's clock than the allowed skew.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import psycopg

from tidegauge.state_backends.errors import ClockError

logger = logging.getLogger(__name__)

# Clocks that NTP keeps are within a second of each other. Kerberos allows the same skew.
MAX_SKEW = timedelta(minutes=5)

# Not now(): tests replace tidegauge.clock() to set the time of a batch.
DATABASE_CLOCK = "SELECT tidegauge.clock()"


def max_skew(environ: Mapping[str, str] = os.environ) -> timedelta:
    """Return `TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS`; 300 s if it is not set.

    Raises ClockError if it is not a whole number of 1 or more.
    """
    given = environ.get("TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS", "")
    if given and not (given.isdecimal() and int(given)):
        raise ClockError(f"TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS: {given!r} is not a number of seconds; set it to 1 or more")
    return timedelta(seconds=int(given)) if given else MAX_SKEW


def local_now() -> datetime:
    return datetime.now(UTC)


def uptime_seconds() -> float:
    """Return the seconds since the host was started, including sleep if the system counts that."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def checked_clock(
    conn: psycopg.Connection, what: str, skew: timedelta | None = None, now: Callable[[], datetime] = local_now
) -> datetime:
    """Return the database's clock. what: the pipeline or state that asks, for the error.

    Raises ClockError if it and this host's clock differ by more than `skew`; None: by more than the setting allows.
    """
    # This host's clock is read before and after the query, so that a slow answer does not count as skew.
    bound, earliest = max_skew() if skew is None else skew, now()
    row = conn.execute(DATABASE_CLOCK).fetchone()
    assert row is not None
    at, latest = row[0], now()
    if not earliest - bound <= at <= latest + bound:
        raise ClockError(
            f"{what}: the database's clock says {_shown(at)} and that of host {socket.gethostname()!r} "
            f"{_shown(latest)}, more than {bound} apart: under a wrong clock keys with a ttl would expire too early "
            "or too late; correct the wrong one"
        )
    return at  # type: ignore[no-any-return]


class BatchClock:
    """Gives batches their time. A driver keeps one over failures and sessions, because it remembers the last reading.

    skew: how far clocks may be apart. now, uptime: the driver's clock, and seconds that no clock change affects.
    """

    def __init__(
        self,
        skew: timedelta = MAX_SKEW,
        now: Callable[[], datetime] = local_now,
        uptime: Callable[[], float] = uptime_seconds,
    ) -> None:
        self.skew = skew
        self._now = now
        self._uptime = uptime
        self._last: Reading | None = None

    def read(self, conn: psycopg.Connection, pipeline: str) -> datetime:
        """Return the database's clock.

        Raises ClockError if it differs from the driver's, or if it has jumped since the last call.
        """
        before = self._uptime()
        at = checked_clock(conn, f"pipeline {pipeline!r}", self.skew, self._now)
        reading = Reading(at, before, self._uptime())
        self._compare_with_last(pipeline, reading)
        self._last = reading
        return at

    def batch_time(self, now: datetime, committed: datetime | None, opened: datetime | None) -> datetime:
        """Return the time of a batch that is begun at `now`.

        committed: the time of the batch before. opened: the time of earlier attempts at this batch, which it keeps. If
        that is too far ahead, because the clock was wrong then, the batch gets the clock's time plus the skew allowed.
        """
        wanted = opened or max(now, committed or now)
        if wanted > now + self.skew:
            logger.warning(
                "batch time goes back from %s to %s, because the clock was ahead", _shown(wanted), _shown(now)
            )
        return min(wanted, now + self.skew)

    def _compare_with_last(self, pipeline: str, now: "Reading") -> None:
        if self._last is None:
            return
        shortest = timedelta(seconds=now.before - self._last.after)
        longest = timedelta(seconds=now.after - self._last.before)
        if not shortest - self.skew <= now.time - self._last.time <= longest + self.skew:
            raise ClockError(
                f"pipeline {pipeline!r}: the database's clock went from {_shown(self._last.time)} to "
                f"{_shown(now.time)} within {longest.total_seconds():.0f} s; if the new time is right, start the "
                "driver again, else correct the clock"
            )


class Reading(NamedTuple):
    """The database's clock, and this host's uptime before and after it was asked."""

    time: datetime
    before: float
    after: float


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
