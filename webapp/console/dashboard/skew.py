"""How unevenly a batch loaded its tasks, by state."""

from dataclasses import dataclass

from tidegauge.webapp.catalog.batches import BatchSummary


@dataclass(frozen=True)
class Skew:
    """How unevenly the tasks of one batch were loaded, for one state.

    keys: written in total. largest: written by the task with the most.
    ratio: largest divided by average; 1 if all tasks wrote the same, None for a single task or nothing written.
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
    """Return the skew of each state that the batch wrote, sorted by name."""
    return [
        Skew(state, keys, batch.tasks.get(state, {}).get("tasks", 0), batch.tasks.get(state, {}).get("largest", 0))
        for state, keys in sorted(batch.keys_written.items())
    ]


def worst_skew(batch: BatchSummary) -> Skew | None:
    """Return the largest skew; None if no state was written by several tasks."""
    uneven = [skew for skew in skews(batch) if skew.ratio is not None]
    return max(uneven, key=lambda skew: skew.ratio or 0.0, default=None)
