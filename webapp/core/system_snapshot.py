"""One look at the whole system, for metrics and for readiness: a fixed number of statements, whatever there is to see.

A look is shared for a second by all who ask in one process, so that eager scrapers cost the database nothing. Sizes
take longer to find out than the rest, and hold longer.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Generic, TypeVar

from django.conf import settings
from django.db import connection

from state_backends.synchronizer.membership import Member
from webapp.states import queries
from webapp.states.batches import BatchSummary, recent_batches
from webapp.states.queries import PipelineStatus, StateSummary

LOOK_SECONDS = 1.0
SIZES_SECONDS = 15.0

RECENT_BATCHES = 50

MAINTENANCE = """
SELECT kind, status, count(*), max(finished_at) FROM tidemark.maintenance_run GROUP BY kind, status ORDER BY 1, 2
"""

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Runs:
    """Maintenance runs of one kind and status, as far as they are kept. last: when the latest one ended."""

    kind: str
    status: str
    count: int
    last: datetime | None


@dataclass(frozen=True)
class SystemSnapshot:
    """at: when. batches: the newest of each pipeline, latest first."""

    at: datetime
    pipelines: list[PipelineStatus]
    batches: dict[str, list[BatchSummary]]
    runs: list[Runs]
    members: list[Member]


class _Kept(Generic[Seen]):
    """What was seen last, for so many seconds. Whoever comes while somebody looks waits for what that one sees."""

    def __init__(self, see: Callable[[], Seen], seconds: float) -> None:
        self._see = see
        self._seconds = seconds
        self._lock = Lock()
        self._seen: tuple[float, Seen] | None = None

    def __call__(self) -> Seen:
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen[0] > self._seconds:
                self._seen = time.monotonic(), self._see()
            return self._seen[1]

    def forget(self) -> None:
        self._seen = None


def _look() -> SystemSnapshot:
    return SystemSnapshot(
        at=datetime.now(UTC),
        pipelines=queries.pipelines(),
        batches=recent_batches(RECENT_BATCHES),
        runs=_runs(),
        members=queries.members(),
    )


def _runs() -> list[Runs]:
    with connection.cursor() as cursor:
        cursor.execute(MAINTENANCE)
        return [Runs(*row) for row in cursor.fetchall()]


def _states() -> list[StateSummary]:
    return queries.states()


def age(moment: datetime, now: datetime) -> float:
    """Return the seconds from one time to a later one; 0 where clocks disagree."""
    return max(timedelta(0), now - moment).total_seconds()


def forget() -> None:
    """Look anew, whoever asks next."""
    look.forget()
    sizes.forget()


look = _Kept(_look, LOOK_SECONDS)
sizes = _Kept(_states, SIZES_SECONDS)


# Which pipelines are stale, since which txid, and why. A stale state is served all the same, and says its txid.


# Nobody drives it, though nobody has wished it to rest: a paused one waits as told, a finished one has read it all.
UNDRIVEN = {
    "lost": "its driver died without a word",
    "stopped": "its driver was stopped",
    "never started": "it was never started",
}


@dataclass(frozen=True)
class Freshness:
    """How old a pipeline's states are. seconds: the age of the oldest input not counted, or of the last commit.

    reason: why it is stale; empty: it is not.
    """

    name: str
    status: str
    committed_txid: int
    committed_at: datetime | None
    seconds: float | None
    reason: str


def freshness(seen: SystemSnapshot) -> list[Freshness]:
    return [
        Freshness(one.name, one.status, one.committed_txid, one.committed_at, _seconds(one, seen.at), _reason(one))
        for one in seen.pipelines
    ]


def _seconds(pipeline: PipelineStatus, now: datetime) -> float | None:
    if pipeline.lag_seconds is not None and pipeline.is_driven:
        return pipeline.lag_seconds
    return None if pipeline.committed_at is None else age(pipeline.committed_at, now)


def _reason(pipeline: PipelineStatus) -> str:
    if pipeline.status in UNDRIVEN:
        return UNDRIVEN[pipeline.status]
    if pipeline.status in ("failed", "restarting"):
        return f"{pipeline.status}: {pipeline.message}"
    threshold = settings.TIDEMARK_STALE_AFTER_SECONDS
    if pipeline.lag_seconds is not None and pipeline.lag_seconds > threshold:
        return f"its oldest input waits for {pipeline.lag_seconds:.0f} s, more than {threshold:g} s"
    return ""
