"""Trend: whether the lag of a pipeline grows or shrinks, and when its pending input will be counted.

The lag now is compared with what the ledger recorded after a batch of the last ten minutes. Lag and pending input are
two figures: while files that landed together are counted one after the other, the oldest of them gets older although
fewer and fewer are left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegauge.webapp.core.writing import number

# A pipeline waits this long between batches without being behind: as long as two of its own batches, at least this.
LEAST_LAG_SECONDS = 30.0
# Shorter than this, a few batches of unequal size would decide.
LEAST_WINDOW_SECONDS = 20.0
# A lag that differs by less is the same: readers of files look twice a second, and batches differ.
STEADY_SECONDS, STEADY_SHARE = 5.0, 0.05

# Of the batches that are 1, 2, 4, .. before the newest, the oldest one in the window, so that few rows are read.
# What is stored after a batch is its lag and what was pending then; see pipelines/driver/lag.py.
TREND = """
SELECT jsonb_build_object(
    'seconds', extract(epoch FROM clock_timestamp() - b.committed_at), 'lag', b.metrics -> 'lag_seconds',
    'pending', b.metrics -> 'pending' -> 'count', 'unit', b.metrics -> 'pending' -> 'unit',
    'between', extract(epoch FROM last.committed_at - b.committed_at) / (last.txid - b.txid)) AS before
FROM generate_series(0, 11) k (n) CROSS JOIN LATERAL (
    -- The limit keeps the planner from reading all batches at once.
    SELECT one.txid, one.committed_at, one.metrics FROM tidegauge.batch one
    WHERE one.pipeline = p.name AND one.txid = last.txid - (1 << k.n) LIMIT 1
) b
WHERE b.metrics ? 'pending' AND (k.n = 0 OR b.committed_at > clock_timestamp() - interval '10 min')
ORDER BY b.txid LIMIT 1
"""


@dataclass(frozen=True)
class Trend:
    """What was pending `seconds` ago, after a batch. lag: of the oldest input then, None if unknown.

    between: seconds from one commit to the next, on average since then.
    """

    seconds: float
    lag: float | None
    pending: int
    unit: str
    between: float

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Trend | None":
        return cls(**stored) if stored else None

    @property
    def is_known(self) -> bool:
        """Return whether it is old enough to be compared with now."""
        return self.seconds >= LEAST_WINDOW_SECONDS

    def is_behind(self, lag: float | None) -> bool:
        """Return whether a lag is more than the time that input waits in any case, for its turn in a batch."""
        return lag is None or lag > max(LEAST_LAG_SECONDS, 2 * self.between)

    def change(self, lag: float | None, pending: int) -> int:
        """Return 1 if the lag grows, -1 if it shrinks, 0 if it does neither or that is not known yet.

        The amount of input decides if the source does not say how old it is.
        """
        if not self.is_known:
            return 0
        if lag is None or self.lag is None:
            return _compared(pending, self.pending, STEADY_SHARE * self.pending)
        return _compared(lag, self.lag, max(STEADY_SECONDS, STEADY_SHARE * self.lag))

    def seconds_left(self, pending: int) -> float | None:
        """Return when the pending input will be counted at the present rate; None if it does not become less."""
        done = self.pending - pending
        if not self.is_known or done <= 0 or not pending:
            return None
        return pending * self.seconds / done

    def left(self, pending: int) -> str:
        """Return when the pending input will be counted at the present rate, and that rate; empty if it is not less."""
        seconds = self.seconds_left(pending)
        if seconds is None:
            return ""
        each = seconds / pending
        per, unit = (60, "minute") if each < 60 else (3600, "hour")
        rate = _rounded(per / each)
        return f"done in about {about(seconds)} ({number(pending)} {self.unit} at {number(rate)} a {unit})"


def about(seconds: float) -> str:
    """Return a duration with two digits, so that the text of a page does not change at every refresh."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{number(_rounded(seconds / size))} {unit}"
    return f"{number(_rounded(seconds))} s"


def _rounded(value: float) -> int:
    return max(1, int(float(f"{value:.2g}")))


def _compared(now: float, before: float, tolerance: float) -> int:
    if abs(now - before) <= tolerance:
        return 0
    return 1 if now > before else -1
