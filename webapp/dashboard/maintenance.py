"""Maintenance runs as the pages show them: how far one has come, and what it changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.utils import timezone

from webapp.states.models import MaintenanceRun
from webapp.states.queries import StateSummary

# Which rows a step walks over, by the figure that counts them before the run, in the order of the steps.
STEPS: Mapping[str, Mapping[str, str]] = {
    MaintenanceRun.Kind.COMPACTION: {
        "changelog entries": "changelog_rows",
        "dead entries": "changelog_rows",
        "tombstones": "state_rows",
        "previous versions": "state_rows",
    },
    MaintenanceRun.Kind.EXPIRY: {"expired rows": "state_rows"},
}

TONES = {"queued": "calm", "running": "watch", "done": "calm", "failed": "bad", "cancelled": "calm"}


@dataclass(frozen=True)
class Figure:
    """One figure before and after a run; after, change: None until it is over."""

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
    """A run and what can be said about it."""

    run: MaintenanceRun

    @property
    def status(self) -> str:
        return "cancelling" if self.run.status == "running" and self.run.cancel_requested else self.run.status

    @property
    def tone(self) -> str:
        return TONES.get(self.run.status, "watch")

    @property
    def may_be_cancelled(self) -> bool:
        return not self.run.is_finished and not self.run.cancel_requested

    @cached_property
    def steps(self) -> list[dict]:
        return self.run.progress.get("steps", [])

    @property
    def removed(self) -> int:
        return sum(step["removed"] for step in self.steps)

    @property
    def percent(self) -> int:
        """How much of the rows to walk over has been seen; a guess, as some steps shorten the way of later ones."""
        if self.run.status == "done":
            return 100
        weights = {step: self.run.before.get(name, 0) for step, name in STEPS[self.run.kind].items()}
        whole = sum(weights.values())
        return min(99, round(100 * self._seen(weights) / whole)) if whole else 0

    def _seen(self, weights: Mapping[str, int]) -> int:
        """Return the rows of the steps that are past, and those seen in the one at hand."""
        if not self.steps:
            return 0
        at, names = self.steps[-1]["step"], list(weights)
        past = names[: names.index(at)] if at in weights else names
        return sum(weights[name] for name in past) + min(self.steps[-1]["seen"], weights.get(at, 0))

    @property
    def took(self) -> timedelta | None:
        """From its start until its end, or until now."""
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
        """The figure that a run of its kind is about."""
        wanted = "changelog_rows" if self.run.kind == MaintenanceRun.Kind.COMPACTION else "state_rows"
        return next((figure for figure in self.figures if figure.name == wanted), None)

    @property
    def size(self) -> Figure | None:
        """Bytes of the state and its changelog together."""
        if not self.run.before:
            return None
        return Figure("size_bytes", _bytes(self.run.before), _bytes(self.run.after) if self.run.after else None)


def _bytes(figures: dict[str, int]) -> int:
    return sum(number for name, number in figures.items() if name.endswith("_bytes"))


@dataclass(frozen=True)
class StateUpkeep:
    """What was last done for a state. compacted, expired: when; None: never, or longer ago than runs are kept."""

    state: StateSummary
    compacted: datetime | None
    expired: datetime | None
    going: RunView | None


def latest_of_each(
    states: Iterable[StateSummary], done: Iterable[MaintenanceRun], going: Iterable[MaintenanceRun]
) -> list[StateUpkeep]:
    """Return one for each state. done: newest runs by state and kind. going: those that are queued or running."""
    ended = {(run.state_id, run.kind): run.finished_at for run in done}
    under_way = {run.state_id: RunView(run) for run in going}
    return [
        StateUpkeep(
            state,
            compacted=ended.get((state.name, MaintenanceRun.Kind.COMPACTION)),
            expired=ended.get((state.name, MaintenanceRun.Kind.EXPIRY)),
            going=under_way.get(state.name),
        )
        for state in states
    ]
