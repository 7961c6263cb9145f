"""Rebuild the rows of a state from its changelog."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.state_backends import BACKENDS
from tidegauge.state_backends.errors import TidegaugeError


class Command(BaseCommand):
    help = "Rebuild the rows of a state from its changelog. Stop its pipeline first."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", metavar="STATE", help="which state; it must have a changelog")
        parser.add_argument("--to", choices=list(BACKENDS), help="backend to write to (default: the state's own)")
        parser.add_argument(
            "--resume-from", metavar="KEY", type=json.loads, help="continue after this key, a JSON list"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import queries
        from tidegauge.webapp.maintenance.operations import rebuild_state

        state, last, keys = options["state"], options["resume_from"], 0
        try:
            to = options["to"] or queries.state(state).backend
            for done in rebuild_state(state=state, to=to, resume_from=last, requested_by="command rebuild"):
                last, keys = done.last_key, done.keys
                self.stderr.write(f"{state}: {keys} of about {done.of} keys, up to {_json(last)}")
        except TidegaugeError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt as interrupt:
            resume = f"; continue with --resume-from '{_json(last)}'" if last else ""
            raise CommandError(f"{state}: stopped after {keys} keys{resume}") from interrupt
        self.stdout.write(f"{state}: {keys} keys rebuilt in {to}")


def _json(key: Any) -> str:
    return json.dumps(list(key), default=str)
