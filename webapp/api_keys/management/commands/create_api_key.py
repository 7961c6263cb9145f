"""Make an API key from a shell: the key on standard output, words for people on standard error."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.api_keys.models import Scope
from webapp.api_keys.services import UnknownScopeError, create_api_key


class Command(BaseCommand):
    help = "Make an API key and print it; it cannot be shown again"
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="who will use it")
        parser.add_argument(
            "--scope",
            action="append",
            metavar="SCOPE",
            help=f"{' or '.join(Scope.values)}; may be repeated; {Scope.READ.value} if absent",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            key, secret = create_api_key(options["name"], options["scope"] or [Scope.READ])
        except UnknownScopeError as error:
            raise CommandError(str(error), returncode=2) from error
        self.stderr.write(f"{key}, scopes {', '.join(key.scopes)}; note the key down, it is shown only now")
        self.stdout.write(secret)
