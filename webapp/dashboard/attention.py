"""Attention: which pipelines a person should look at first."""

from collections.abc import Iterable
from dataclasses import dataclass

from webapp.states.queries import BatchSummary, PipelineStatus

# How the statuses of drivers look, and how bad they are: first the worst.
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
RANKS = ["bad", "watch", "good", "calm"]


def worst_first(pipelines: Iterable[PipelineStatus]) -> list[PipelineStatus]:
    """Return those in trouble first, then those with something to watch; equals by name, so that none moves idly."""
    return sorted(pipelines, key=lambda pipeline: (RANKS.index(urgency(pipeline)), pipeline.name))


def urgency(pipeline: PipelineStatus) -> str:
    """Return bad, watch, good or calm: the status, or worse where figures or a failed reprocess ask for a look."""
    anew = pipeline.reprocess
    if anew is not None and tone(anew.status) == "bad":
        return "bad"
    said = tone(pipeline.status)
    wants_a_look = pipeline.failures or pipeline.dropped or (pipeline.pending or {}).get("alarm")
    return "watch" if said in ("good", "calm") and wants_a_look else said


def tone(status: str) -> str:
    return TONES.get(status, "watch")


# Skew: how unevenly the tasks of a batch were loaded, state by state.


@dataclass(frozen=True)
class Skew:
    """Of one state in one batch. keys: written; largest: by the task with the most of them.

    ratio: largest by average, 1 where all tasks wrote alike; None where one task, or nothing, was written.
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


def skews(batch: BatchSummary) -> list[Skew]:
    """Return one for each state that the batch wrote, by their names."""
    return [
        Skew(state, keys, batch.tasks.get(state, {}).get("tasks", 0), batch.tasks.get(state, {}).get("largest", 0))
        for state, keys in sorted(batch.keys_written.items())
    ]


def worst_skew(batch: BatchSummary) -> Skew | None:
    """Return the most uneven one; None where no state was written by several tasks."""
    uneven = [skew for skew in skews(batch) if skew.ratio is not None]
    return max(uneven, key=lambda skew: skew.ratio or 0.0, default=None)
