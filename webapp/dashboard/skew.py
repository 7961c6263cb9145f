"""Skew: how unevenly the tasks of a batch were loaded, state by state."""

from dataclasses import dataclass

from webapp.states.selectors import BatchSummary


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
