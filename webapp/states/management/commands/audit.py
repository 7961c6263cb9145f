from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from state_backends.errors import TidemarkError
from webapp.states.services import audit_state

SHOWN = 20


class Command(BaseCommand):
    help = "Compare keys of a state, chosen at random, with its changelog. Readers and its pipeline may go on."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", metavar="STATE", help="which state; it must have a changelog")
        parser.add_argument("--sample", metavar="N", type=int, default=1000, help="how many keys (default: 1000)")

    def handle(self, *args: Any, **options: Any) -> None:
        state = options["state"]
        try:
            found = audit_state(state=state, sample=options["sample"])
        except TidemarkError as error:
            raise CommandError(str(error)) from error
        for deviation in found.deviations[:SHOWN]:
            self.stderr.write(f"{state}: key {deviation.key!r} holds {deviation.stored}, counted {deviation.logged}")
        compared = f"{found.keys} keys compared as of batch {found.txid}"
        if found.deviations:
            raise CommandError(f"{state}: {compared}, {len(found.deviations)} deviate; see docs/recovery.md")
        self.stdout.write(f"{state}: {compared}, none deviates")
