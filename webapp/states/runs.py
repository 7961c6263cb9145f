"""Maintenance runs, read."""

from webapp.states.errors import UnknownRunError
from webapp.states.models import MaintenanceRun


def runs(*, state: str = "", kind: str = "", status: str = "", limit: int = 50) -> list[MaintenanceRun]:
    """Return the newest runs; an empty word asks for all."""
    wanted = {"state": state, "kind": kind, "status": status}
    return list(MaintenanceRun.objects.filter(**{name: word for name, word in wanted.items() if word})[:limit])


def run(run_id: int) -> MaintenanceRun:
    found = MaintenanceRun.objects.filter(pk=run_id).first()
    if found is None:
        raise UnknownRunError(f"there is no maintenance run {run_id}")
    return found
