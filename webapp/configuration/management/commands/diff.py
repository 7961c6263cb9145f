"""Compare configuration files with what is stored. The exit status is 1 if something differs, and 2 after an error."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.webapp.configuration import files


class Command(BaseCommand):
    help = "Show what `apply` would change; exits with 0 if nothing differs, 1 if something does, 2 after an error"
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        files.add_arguments(parser)

    def check_options(self, options: dict[str, Any]) -> None:
        files.check(options["files"])

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            changes = self._changes(options)
        except CommandError:
            raise
        except Exception as error:  # any, because the exit status of a traceback would mean that something differs
            raise CommandError(str(error), returncode=2) from error
        if changes:
            sys.exit(1)

    def _changes(self, options: dict[str, Any]) -> list[Any]:
        from tidegauge.webapp.configuration.document import Part, merged
        from tidegauge.webapp.configuration.report import as_documents, as_lines
        from tidegauge.webapp.configuration.services import diff

        self.check_options(options)
        wanted = merged(Part(*each) for each in files.read(options["files"]))
        changes = diff(wanted, prune=options["prune"])
        lines = [json.dumps({"changes": as_documents(changes)})] if options["json"] else as_lines(changes)
        for line in lines:
            self.stdout.write(line)
        return changes
