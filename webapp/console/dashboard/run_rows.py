"""Maintenance runs as the pages show them: progress, changes, and the last runs of each state."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.utils import timezone

from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.state_summary import StateSummary

# The steps in the order in which they run, each with the figure that counted its rows before the run.
STEPS: Mapping[str, Mapping[str, str]] = {
    MaintenanceRun.Kind.COMPACTION: {
        "changelog entries": "changelog_rows",
        "dead entries": "changelog_rows",
        "tombstones": "state_rows",
        "previous versions": "state_rows",
    },
    MaintenanceRun.Kind.EXPIRY: {"expired rows": "state_rows"},
    MaintenanceRun.Kind.AUDIT: {},
}

TONES = {"queued": "calm", "running": "watch", "done": "calm", "failed": "bad", "cancelled": "calm"}


@dataclass(frozen=True)
class Figure:
    """One figure before and after a run; after, change: None until it has finished."""

    name: str
    before: int
    after: int | None

    @property
    def change(self) -> int | None:
        return None if self.after is None else self.after - self.before

    @property
    def is_bytes(self) -> bool:
        return self.name.endswith("_bytes")

    @property
    def label(self) -> str:
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class RunView:
    """A run with the figures that its pages show."""

    run: MaintenanceRun

    @property
    def status(self) -> str:
        return "cancelling" if self.run.status == "running" and self.run.cancel_requested else self.run.status

    @property
    def tone(self) -> str:
        return TONES.get(self.run.status, "watch")

    @property
    def can_be_cancelled(self) -> bool:
        return not self.run.is_finished and not self.run.cancel_requested

    @property
    def removed(self) -> int:
        return sum(step["removed"] for step in self.run.steps)

    @property
    def percent(self) -> int:
        """Share of the rows read so far. An estimate, because some steps remove rows that later ones would read."""
        if self.run.status == "done":
            return 100
        weights = {step: self.run.before.get(name, 0) for step, name in STEPS[self.run.kind].items()}
        whole = sum(weights.values())
        return min(99, round(100 * self._seen(weights) / whole)) if whole else 0

    def _seen(self, weights: Mapping[str, int]) -> int:
        """Return the rows of the finished steps plus those read in the current one."""
        if not self.run.steps:
            return 0
        current, names = self.run.steps[-1]["step"], list(weights)
        finished = names[: names.index(current)] if current in weights else names
        return sum(weights[name] for name in finished) + min(self.run.steps[-1]["seen"], weights.get(current, 0))

    @property
    def duration(self) -> timedelta | None:
        """From its start until its end, or until now; None before its start."""
        if self.run.started_at is None:
            return None
        return (self.run.finished_at or timezone.now()) - self.run.started_at

    @property
    def since(self) -> datetime:
        return self.run.started_at or self.run.requested_at

    @cached_property
    def figures(self) -> list[Figure]:
        return [Figure(name, self.run.before[name], self.run.after.get(name)) for name in sorted(self.run.before)]

    @property
    def rows(self) -> Figure | None:
        """The figure that this kind of run reduces."""
        wanted = "changelog_rows" if self.run.kind == MaintenanceRun.Kind.COMPACTION else "state_rows"
        return next((figure for figure in self.figures if figure.name == wanted), None)

    @property
    def size(self) -> Figure | None:
        """Bytes of the state and its changelog together."""
        if not self.run.before:
            return None
        return Figure("size_bytes", _bytes(self.run.before), _bytes(self.run.after) if self.run.after else None)


@dataclass(frozen=True)
class StateUpkeep:
    """The last runs of a state. compacted, expired: None if never, or longer ago than runs are kept."""

    state: StateSummary
    compacted: datetime | None
    expired: datetime | None
    active: RunView | None


def latest_of_each(
    states: Iterable[StateSummary], finished: Iterable[MaintenanceRun], active: Iterable[MaintenanceRun]
) -> list[StateUpkeep]:
    """Return one for each state. finished: newest run by state and kind. active: queued and running ones."""
    finished_at = {(run.state_id, run.kind): run.finished_at for run in finished}
    views = {run.state_id: RunView(run) for run in active}
    return [
        StateUpkeep(
            state,
            compacted=finished_at.get((state.name, MaintenanceRun.Kind.COMPACTION)),
            expired=finished_at.get((state.name, MaintenanceRun.Kind.EXPIRY)),
            active=views.get(state.name),
        )
        for state in states
    ]


def _bytes(figures: dict[str, int]) -> int:
    return sum(number for name, number in figures.items() if name.endswith("_bytes"))
