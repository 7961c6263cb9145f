"""Reads maintenance runs."""

from collections.abc import Collection
from typing import Any

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.catalog.models import MaintenanceRun


class UnfinishedRunError(TidegaugeError):
    """A run for this state is queued or running: wait for it, or cancel it."""

    def __init__(self, message: str, run_id: int) -> None:
        super().__init__(message)
        self.run_id = run_id


class UnknownRunError(TidegaugeError):
    """No maintenance run has that number."""


def runs(
    *, before: int | None, limit: int, states: Collection[str] | None = None, **narrowed: str
) -> list[MaintenanceRun]:
    """Return the newest runs, or those older than the run `before`.

    states: only runs of these; None: of all. narrowed: the state, the kind or the status of all; empty text: any.
    """
    wanted: dict[str, Any] = {name: word for name, word in narrowed.items() if word}
    wanted |= {} if before is None else {"id__lt": before}
    wanted |= {} if states is None else {"state__in": states}
    return list(MaintenanceRun.objects.filter(**wanted).order_by("-id")[:limit])


def unfinished() -> list[MaintenanceRun]:
    """Return the runs that are queued or running, the oldest first."""
    return list(MaintenanceRun.objects.filter(status__in=MaintenanceRun.UNFINISHED).order_by("id"))


def latest() -> list[MaintenanceRun]:
    """Return the newest successful run of each state and kind."""
    done = MaintenanceRun.objects.filter(status=MaintenanceRun.Status.DONE)
    return list(done.order_by("state_id", "kind", "-id").distinct("state_id", "kind"))


def find_run(run_id: int) -> MaintenanceRun:
    found = MaintenanceRun.objects.filter(pk=run_id).first()
    if found is None:
        raise UnknownRunError(f"there is no maintenance run {run_id}")
    return found
