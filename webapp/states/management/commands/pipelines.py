"""List pipelines, pause and resume them."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from state_backends.errors import TidemarkError
from webapp.states import queries, services
from webapp.states.documents import pipeline_document
from webapp.states.queries import PipelineStatus

ACTIONS = {"pause": services.pause_pipeline, "resume": services.resume_pipeline}


class Command(BaseCommand):
    help = "List the pipelines, or pause or resume one. A pause takes effect after the current batch."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", nargs="?", choices=["list", *ACTIONS], default="list", help="(default: list)")
        parser.add_argument("name", nargs="?", metavar="NAME", help="which pipeline (list: all by default)")
        parser.add_argument("--json", action="store_true", help="print one line of JSON per pipeline")

    def handle(self, *args: Any, **options: Any) -> None:
        action, name = options["action"], options["name"]
        if action in ACTIONS and not name:
            raise CommandError(f"pipelines {action} needs the NAME of a pipeline", returncode=2)
        try:
            if action in ACTIONS:
                ACTIONS[action](name=name, requested_by=f"command pipelines {action}")
            found = [queries.pipeline(name)] if name else queries.pipelines()
        except TidemarkError as error:
            raise CommandError(str(error)) from error
        for pipeline in found:
            document = pipeline_document(pipeline)
            self.stdout.write(json.dumps(document, default=str) if options["json"] else _sentence(pipeline))


def _sentence(pipeline: PipelineStatus) -> str:
    wanted = f", {pipeline.wanted} requested by {pipeline.wanted_by}" if pipeline.wanted_by else ""
    reason = f": {pipeline.message}" if pipeline.message else ""
    return f"{pipeline.name}: {pipeline.status}{wanted}, batch {pipeline.committed_txid} committed{reason}"
