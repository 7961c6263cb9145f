"""Override a state's ttl and changelog, or reset them to the declaration."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.schema.overrides import DECLARED, KEEP, Log, Terms, Ttl
from tidegauge.webapp.commands.management.timespan import parse_timespan

WORDS: dict[str, Log] = {"on": True, "off": False, "declared": DECLARED}
NEXT_START = "from the next start of its driver"


class Command(BaseCommand):
    help = "Set the ttl and the changelog of a state. They override the declaration until they are set to `declared`."
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="which state")
        parser.add_argument("--ttl", help="retention, such as 30d, 12h or 1d12h; `never` (unlimited) or `declared`")
        parser.add_argument("--changelog", choices=WORDS, help=f"whether every version is kept; applies {NEXT_START}")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def check_options(self, options: dict[str, Any]) -> None:
        _overrides(options)

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.maintenance import operations

        ttl, changelog = _overrides(options)
        name = options["name"]
        try:
            terms = operations.change_state(name=name, ttl=ttl, changelog=changelog, requested_by="command set_state")
        except TidegaugeError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(json.dumps({"state": name} | terms.document()) if options["json"] else sentence(name, terms))


def _overrides(options: dict[str, Any]) -> tuple[Ttl, Log]:
    ttl = KEEP if options["ttl"] is None else parse_ttl(options["ttl"])
    changelog = WORDS.get(options["changelog"], KEEP)
    if ttl is KEEP and changelog is KEEP:
        raise CommandError("set_state needs --ttl, --changelog or both", returncode=2)
    return ttl, changelog


def parse_ttl(text: str) -> Ttl:
    """Return the ttl in `--ttl`. Raises CommandError with returncode 2 for an invalid one."""
    if text in ("never", "declared"):
        return None if text == "never" else DECLARED
    return parse_timespan(text, "--ttl", ", never or declared")


def sentence(name: str, terms: Terms) -> str:
    ttl = "unlimited" if terms.ttl is None else str(terms.ttl).removesuffix(", 0:00:00")
    changelog = "on" if terms.next_changelog else "off"
    when = "" if terms.next_changelog == terms.changelog else f" {NEXT_START}"
    overridden = ", ".join(sorted(terms.edited)) or "nothing"
    return f"{name}: ttl {ttl}, changelog {changelog}{when}; overridden: {overridden}"
