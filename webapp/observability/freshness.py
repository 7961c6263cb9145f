"""Which pipelines are stale, since which txid, and why. A stale state is served all the same, and says its txid."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from webapp.observability.look import Look, age
from webapp.states.selectors import PipelineStatus

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


def freshness(seen: Look) -> list[Freshness]:
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
