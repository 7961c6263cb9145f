"""Restore a backup into an empty database, after everything was lost or on another machine."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.webapp.commands.management.backup.manifest import BackupError
from tidegauge.webapp.commands.management.backup.programs import ProgramError
from tidegauge.webapp.commands.management.backup.targets import add_checkpoint_option, checkpoint_targets


class Command(BaseCommand):
    help = (
        "Restore a backup of `tidegauge backup` into the empty database of DATABASE_URL, and say what to type next. "
        "Refuses a backup that is damaged or does not fit, and a database, checkpoint or store that is not empty."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the backup")
        add_checkpoint_option(parser)

    def check_options(self, options: dict[str, Any]) -> None:
        checkpoint_targets(options["checkpoint"])

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.commands.management.backup.load import load

        given = checkpoint_targets(options["checkpoint"])
        try:
            for line in load(options["folder"].absolute(), given, data_dir() / "checkpoints"):
                self.stdout.write(line)
        except (BackupError, ProgramError, TidegaugeError) as error:
            raise CommandError(str(error)) from error
