"""Back up the database, the checkpoints and the states outside of the database, together."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.commands.management.backup.manifest import BackupError
from tidegauge.webapp.commands.management.backup.programs import ProgramError
from tidegauge.webapp.commands.management.backup.targets import add_checkpoint_option, check_names, checkpoint_targets


class Command(BaseCommand):
    help = (
        "Write a backup to a new folder: the database, the checkpoints and the states outside of the database, as of "
        "the same batch. Drivers may run; no batch is committed while checkpoints and states are copied."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="a folder that does not exist yet")
        add_checkpoint_option(parser)

    def check_options(self, options: dict[str, Any]) -> None:
        checkpoint_targets(options["checkpoint"])

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.catalog import queries
        from tidegauge.webapp.commands.management.backup.save import save

        given = checkpoint_targets(options["checkpoint"])
        folders = {name: data_dir() / "checkpoints" / name for name in queries.pipeline_names()}
        check_names(given, folders)
        try:
            for line in save(options["folder"].absolute(), folders | given):
                self.stdout.write(line)
        except (BackupError, ProgramError, TidegaugeError) as error:
            raise CommandError(str(error)) from error
