"""What needs attention: how bad the status of a pipeline is, and how unevenly a batch loaded its tasks."""

from collections.abc import Iterable
from dataclasses import dataclass

from webapp.states.batches import BatchSummary
from webapp.states.queries import PipelineStatus

TONES = {
    "failed": "bad",
    "lost": "bad",
    "restarting": "watch",
    "starting": "watch",
    "paused": "watch",
    "running": "good",
    "finished": "calm",
    "stopped": "calm",
    "never started": "calm",
}
WORST_FIRST = ["bad", "watch", "good", "calm"]


@dataclass(frozen=True)
class Skew:
    """How unevenly the tasks of one batch were loaded, for one state.

    keys: written in all. largest: written by the task with the most.
    ratio: largest divided by average; 1 where all tasks wrote alike, None for a single task or nothing written.
    """

    state: str
    keys: int
    tasks: int
    largest: int

    @property
    def average(self) -> float | None:
        return self.keys / self.tasks if self.tasks else None

    @property
    def ratio(self) -> float | None:
        return self.largest * self.tasks / self.keys if self.tasks > 1 and self.keys else None


def worst_first(pipelines: Iterable[PipelineStatus]) -> list[PipelineStatus]:
    """Return the pipelines by urgency, then by name, so that the order is stable between refreshes."""
    return sorted(pipelines, key=lambda pipeline: (WORST_FIRST.index(urgency(pipeline)), pipeline.name))


def urgency(pipeline: PipelineStatus) -> str:
    """Return bad, watch, good or calm: by the status, or worse for failures, dropped events or a failed reprocess."""
    if pipeline.reprocess is not None and tone(pipeline.reprocess.status) == "bad":
        return "bad"
    by_status = tone(pipeline.status)
    needs_attention = pipeline.failures or pipeline.dropped or (pipeline.pending or {}).get("alarm")
    return "watch" if by_status in ("good", "calm") and needs_attention else by_status


def tone(status: str) -> str:
    return TONES.get(status, "watch")


def skews(batch: BatchSummary) -> list[Skew]:
    """Return one for each state that the batch wrote, by name."""
    return [
        Skew(state, keys, batch.tasks.get(state, {}).get("tasks", 0), batch.tasks.get(state, {}).get("largest", 0))
        for state, keys in sorted(batch.keys_written.items())
    ]


def worst_skew(batch: BatchSummary) -> Skew | None:
    """Return the most uneven one; None where no state was written by several tasks."""
    uneven = [skew for skew in skews(batch) if skew.ratio is not None]
    return max(uneven, key=lambda skew: skew.ratio or 0.0, default=None)
