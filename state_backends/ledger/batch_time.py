"""Batch time: the clock of a batch, by which every ttl is computed, and when that clock cannot be right.

A batch has the database's time. One batch under a clock that is a month ahead takes every key with a ttl for expired
and begins it again from nothing, and no later batch brings the totals back. So two witnesses are asked:

- The driver's clock. No batch begins while it and the database's are further apart than the skew allowed.
- The time since the driver's host was started, which no clock change touches. Where both processes have one clock, a
  step of it shows as time that has not passed. A driver that has just started has nothing to compare with.

The time of the last batch may still be ahead, because it ran under a clock that was wrong and is right by now. Batch
times never decrease, except then: a batch is at most the skew allowed ahead of the database's clock.
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

# Clocks that NTP keeps are within a second. Kerberos has the same bound.
MAX_SKEW = timedelta(minutes=5)

# The one place where Tidegauge asks for the time of a batch.
DATABASE_CLOCK = "SELECT tidegauge.clock()"


def max_skew(environ: Mapping[str, str] = os.environ) -> timedelta:
    """Return `TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS`; 300 s where it is not set.

    Raises ClockError if it is not a whole number of 1 or more.
    """
    given = environ.get("TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS", "")
    if given and not (given.isdecimal() and int(given)):
        raise ClockError(f"TIDEGAUGE_MAX_CLOCK_SKEW_SECONDS: {given!r} is not a number of seconds; set it to 1 or more")
    return timedelta(seconds=int(given)) if given else MAX_SKEW


def local_now() -> datetime:
    return datetime.now(UTC)


def uptime_seconds() -> float:
    """Return seconds since the host was started, with those it slept where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def checked_clock(
    conn: psycopg.Connection, what: str, skew: timedelta | None = None, now: Callable[[], datetime] = local_now
) -> datetime:
    """Return the database's clock. what: who asks, for the error.

    Raises ClockError if it and this host's are further apart than `skew`; None: than the setting says.
    """
    bound, earliest = max_skew() if skew is None else skew, now()
    row = conn.execute(DATABASE_CLOCK).fetchone()
    assert row is not None
    at, latest = row[0], now()
    if not earliest - bound <= at <= latest + bound:
        raise ClockError(
            f"{what}: the database's clock says {_shown(at)} and that of host {socket.gethostname()!r} "
            f"{_shown(latest)}, more than {bound} apart: under a wrong clock every key with a ttl would end too early "
            "or too late; set the wrong one right"
        )
    return at  # type: ignore[no-any-return]


class BatchClock:
    """Gives batches their time. One per driver, which keeps it over failures and new sessions.

    skew: how far clocks may be apart. now, uptime: the driver's clock, and seconds that no clock change touches.
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

        Raises ClockError if it differs from the driver's, or was changed since the last call.
        """
        before = self._uptime()
        at = checked_clock(conn, f"pipeline {pipeline!r}", self.skew, self._now)
        reading = Reading(at, before, self._uptime())
        self._compare_with_last(pipeline, reading)
        self._last = reading
        return at

    def batch_time(self, now: datetime, committed: datetime | None, opened: datetime | None) -> datetime:
        """Return the time of a batch that is begun at `now`.

        committed: the time of the batch before. opened: that of earlier attempts at this one, which it keeps. Where
        they are too far ahead of the clock, because it was wrong, the batch is as far ahead as clocks may be apart.
        """
        wanted = opened or max(now, committed or now)
        if wanted > now + self.skew:
            logger.warning("batch time goes back from %s to %s, as the clock was ahead", _shown(wanted), _shown(now))
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
                "driver again, else set the clock right"
            )


class Reading(NamedTuple):
    """The database's clock, and this host's uptime before and after it was asked."""

    time: datetime
    before: float
    after: float


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
