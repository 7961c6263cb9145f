"""Apply configuration files: API keys, saved queries, webhooks, alert rules, limits, retention, the schedule."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.webapp.configuration import files


class Command(BaseCommand):
    help = "Make the stored configuration equal to files: all of them or, after an error, nothing"
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        files.add_arguments(parser)
        parser.add_argument(
            "--secrets",
            metavar="FILE",
            type=Path,
            help="write the secrets of new API keys and webhooks to this new file; default: standard output",
        )

    def check_options(self, options: dict[str, Any]) -> None:
        files.check(options["files"])
        if options["secrets"] and options["secrets"].exists():
            raise CommandError(f"--secrets {str(options['secrets'])!r} exists; name a new file", returncode=2)

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.configuration.document import Part, merged
        from tidegauge.webapp.configuration.errors import ConfigurationError
        from tidegauge.webapp.configuration.report import as_documents, as_lines, summary
        from tidegauge.webapp.configuration.services import apply

        self.check_options(options)
        path = options["secrets"]
        try:
            wanted = merged(Part(*each) for each in files.read(options["files"]))
            with files.new_secrets_file(path) if path else nullcontext(lambda secrets: None) as keep:
                applied = apply(wanted, prune=options["prune"], keep=keep)
        except ConfigurationError as error:
            raise CommandError(f"{error}; nothing was changed", returncode=2) from error
        shown = {} if path else applied.secrets
        if options["json"]:
            self.stdout.write(json.dumps({"changes": as_documents(applied.changes), "secrets": shown}))
            return
        for line in as_lines(applied.changes):
            self.stdout.write(line)
        for kind, secrets in shown.items():
            for name, secret in secrets.items():
                self.stdout.write(f"secret of {kind} {name}, shown only now: {secret}")
        self.stderr.write(summary(applied.changes))
