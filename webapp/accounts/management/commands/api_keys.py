"""List, rotate and revoke API keys, and revoke single tokens, from the command line. `create_api_key` creates them."""

import json
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.webapp.accounts.key_options import GRACE, KeyOptionError

if TYPE_CHECKING:
    from tidegauge.webapp.accounts.models import ApiKey
    from tidegauge.webapp.accounts.queries import ApiKeySummary

COLUMNS = "{0.shown_key:16} {0.name:24} {0.status:9} {1:16} {2}"


class Command(BaseCommand):
    help = "List, rotate or revoke API keys, or revoke a token"
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        listing = acts.add_parser("list", help="all keys, without their secrets")
        listing.add_argument("--json", action="store_true", help="one JSON object per line")
        rotate = acts.add_parser("rotate", help="give a key a new secret and print it; it cannot be shown again")
        revoke = acts.add_parser("revoke", help="refuse a key from now on")
        for act in (rotate, revoke):
            act.add_argument("prefix", help="the eight characters after tmk_")
        revoke_token = acts.add_parser("revoke-token", help="refuse one short-lived token from now on")
        revoke_token.add_argument("token", help="the token, or its id")
        rotate.add_argument(
            "--grace-seconds",
            type=float,
            default=GRACE.total_seconds(),
            help="how long the old secret stays valid; default: %(default)s",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        acts = {"list": self._list, "rotate": self._rotate, "revoke": self._revoke, "revoke-token": self._revoke_token}
        acts[options["act"]](options)

    def _list(self, options: dict[str, Any]) -> None:
        from tidegauge.webapp.accounts import queries

        for key in queries.api_keys():
            line = json.dumps(asdict(key), default=str) if options["json"] else _line(key)
            self.stdout.write(line)

    def _rotate(self, options: dict[str, Any]) -> None:
        from tidegauge.webapp.accounts import services

        key = _key(options["prefix"])
        try:
            secret = services.rotate_api_key(key, timedelta(seconds=options["grace_seconds"]))
        except services.KeyRevokedError as error:
            raise CommandError(str(error)) from error
        except KeyOptionError as error:
            raise CommandError(str(error), returncode=2) from error
        self.stderr.write(f"{key}: the old secret is valid until {key.previous_until}; the new one is shown only now")
        self.stdout.write(secret)

    def _revoke(self, options: dict[str, Any]) -> None:
        from tidegauge.webapp.accounts import services

        key = _key(options["prefix"])
        services.revoke_api_key(key)
        self.stderr.write(f"{key} is revoked")

    def _revoke_token(self, options: dict[str, Any]) -> None:
        from tidegauge.webapp.accounts import revoked_tokens

        token_id = revoked_tokens.id_of(options["token"])
        try:
            revoked_tokens.revoke_token(token_id, by=None)
        except (revoked_tokens.UnknownTokenError, revoked_tokens.TooManyRevokedError) as error:
            raise CommandError(str(error), returncode=2) from error
        self.stderr.write(f"token {token_id} is revoked")


def _line(key: "ApiKeySummary") -> str:
    used = f"used {key.last_used_at:%Y-%m-%d %H:%M}" if key.last_used_at else "never used"
    return COLUMNS.format(key, ",".join(key.scopes), f"{used}; limit {key.limit}; {key.confined_to or 'all states'}")


def _key(prefix: str) -> "ApiKey":
    from tidegauge.webapp.accounts.models import ApiKey

    prefix = prefix.removeprefix("tmk_").partition("_")[0]
    key = ApiKey.objects.filter(prefix=prefix).first()
    if key is None:
        raise CommandError(f"there is no API key tmk_{prefix}_..; `tidegauge api_keys list` shows them", returncode=2)
    return key
