"""Shared by the commands `compact` and `expire`: maintain states in this process and print the result."""

import json
from typing import TYPE_CHECKING, Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.state_backends.errors import TidegaugeError

if TYPE_CHECKING:
    from tidegauge.webapp.catalog.models import MaintenanceRun


class MaintenanceCommand(BaseCommand):
    kind: ClassVar[str]  # of MaintenanceRun.Kind
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("states", nargs="*", metavar="STATE", help="names of states (default: all)")
        parser.add_argument("--json", action="store_true", help="print one line of JSON per state")

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import queries
        from tidegauge.webapp.catalog.models import MaintenanceRun

        runs = [self._maintain(state, options["json"]) for state in options["states"] or queries.state_names()]
        failed = [run for run in runs if run.status != MaintenanceRun.Status.DONE]
        if failed:
            raise CommandError("; ".join(f"{run.state_id}: {run.status} {run.error}".strip() for run in failed))

    def _maintain(self, state: str, as_json: bool) -> "MaintenanceRun":
        from tidegauge.webapp.catalog.documents import RunSerializer
        from tidegauge.webapp.catalog.models import MaintenanceRun
        from tidegauge.webapp.maintenance import services

        try:
            kind = MaintenanceRun.Kind(self.kind)
            run = services.maintain_now(kind=kind, state=state, requested_by=f"command {kind}")
        except TidegaugeError as error:
            raise CommandError(str(error)) from error
        document = RunSerializer(run).data
        self.stdout.write(json.dumps(document, default=str) if as_json else _sentence(document))
        return run


def _sentence(run: dict[str, Any]) -> str:
    removed = [f"{step['removed']} {step['step']}" for step in run["progress"] if step["removed"]]
    return f"{run['state']}: {', '.join(removed) or 'nothing'} removed"
