"""Write the stored configuration, without secrets, as a file that `apply` reads."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.webapp.configuration.notation import as_json, as_yaml


class Command(BaseCommand):
    help = "Write what is configured as YAML on standard output, without secrets, as a file that `apply` reads"
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="write JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.configuration.errors import ConfigurationError
        from tidegauge.webapp.configuration.services import export

        try:
            document = export()
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=2) from error
        self.stdout.write(as_json(document) if options["json"] else as_yaml(document), ending="")
