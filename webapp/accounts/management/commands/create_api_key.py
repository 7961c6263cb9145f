"""Create an API key from the command line: the key on standard output, messages on standard error."""

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from tidegauge.webapp.accounts.key_options import KeyOptionError, Scope, check, checked_scopes


class Command(BaseCommand):
    help = "Create an API key and print it; it cannot be shown again"
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="who will use it")
        parser.add_argument(
            "--scope",
            action="append",
            metavar="SCOPE",
            help=f"{' or '.join(Scope.values)}; may be repeated; default: {Scope.READ.value}",
        )
        parser.add_argument(
            "--state", action="append", default=[], help="a state it is restricted to; may be repeated; default: all"
        )
        parser.add_argument(
            "--key-prefix", default="[]", metavar="JSON", help="""leading key parts it is restricted to, as '["JFK"]'"""
        )
        parser.add_argument(
            "--query", action="append", default=[], help="restricts it to this saved query; may be repeated"
        )
        parser.add_argument("--rate", type=int, help="requests per minute; 0: no limit; default: as in the settings")
        parser.add_argument("--burst", type=int, help="requests at once; default: the requests of one minute")
        expiry = parser.add_mutually_exclusive_group()
        expiry.add_argument("--days", type=float, help="how many days it is valid; default: unlimited")
        expiry.add_argument("--expires-at", metavar="TIME", help="when it expires, as 2027-01-01T00:00:00Z")

    def check_options(self, options: dict[str, Any]) -> None:
        given = _given(options)
        try:
            checked_scopes(options["name"], given["scopes"])
            check(SimpleNamespace(name=options["name"], **given))
        except KeyOptionError as error:
            raise CommandError(str(error), returncode=2) from error

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.accounts.queries import describe_key_scope
        from tidegauge.webapp.accounts.services import create_api_key

        self.check_options(options)
        key, secret = create_api_key(options["name"], **_given(options))
        restriction = describe_key_scope(key)
        access = f"scopes {', '.join(key.scopes)}" + (f", for {restriction}" if restriction else "")
        self.stderr.write(f"{key}, {access}; store the key, it is shown only now")
        self.stdout.write(secret)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "scopes": options["scope"] or [Scope.READ],
        "states": options["state"],
        "key_prefix": _key_prefix(options["key_prefix"]),
        "queries": options["query"],
        "rate": options["rate"],
        "burst": options["burst"],
        "expires_at": _expires_at(options["days"], options["expires_at"]),
    }


def _key_prefix(text: str) -> list[Any]:
    try:
        prefix = json.loads(text)
    except ValueError:
        prefix = None
    if not isinstance(prefix, list):
        raise CommandError(f"""--key-prefix {text!r} is not a JSON list such as '["JFK"]'""", returncode=2)
    return prefix


def _expires_at(days: float | None, text: str | None):
    if days is not None:
        return datetime.now(UTC) + timedelta(days=days)
    if text is None:
        return None
    try:
        time = parse_datetime(text)
    except ValueError:
        time = None
    if time is None or timezone.is_naive(time):
        raise CommandError(
            f"--expires-at {text!r} is not a time with a time zone, such as 2027-01-01T00:00:00Z", returncode=2
        )
    return time
