"""Rebuild a state's rows from its changelog: the door to webapp.states.services."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from state_backends import BACKENDS
from state_backends.errors import TidemarkError
from webapp.states import queries
from webapp.states.services import rebuild_state


class Command(BaseCommand):
    help = "Make the rows of a state again from its changelog. Stop its pipeline first."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", metavar="STATE", help="which state; it must keep a changelog")
        parser.add_argument("--to", choices=list(BACKENDS), help="where to (default: where the state lives)")
        parser.add_argument("--resume-from", metavar="KEY", type=json.loads, help="go on behind this key, a JSON list")

    def handle(self, *args: Any, **options: Any) -> None:
        state, last, keys = options["state"], options["resume_from"], 0
        try:
            to = options["to"] or queries.state(state).backend
            for done in rebuild_state(state=state, to=to, resume_from=last):
                last, keys = done.last_key, done.keys
                self.stderr.write(f"{state}: {keys} of about {done.of} keys, up to {_json(last)}")
        except TidemarkError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt as interrupt:
            again = f"; go on with --resume-from '{_json(last)}'" if last else ""
            raise CommandError(f"{state}: stopped after {keys} keys{again}") from interrupt
        self.stdout.write(f"{state}: {keys} keys rebuilt in {to}")


def _json(key: Any) -> str:
    return json.dumps(list(key), default=str)
