"""Rename a state or a pipeline."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.schema.former import Kind


class Command(BaseCommand):
    help = (
        "Rename a state, with its tables, history, settings and the API keys that are restricted to it; or with "
        "--pipeline a pipeline. Stop the driver first, and change the name in the declaration afterwards."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="STATE", help="which state")
        parser.add_argument("new", metavar="NEW", help="its new name")
        parser.add_argument("--pipeline", action="store_true", help="a pipeline instead of a state")

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.maintenance import operations

        name, new = options["name"], options["new"]
        kind: Kind = "pipeline" if options["pipeline"] else "state"
        try:
            operations.rename(kind=kind, name=name, new=new, requested_by="command rename")
        except TidegaugeError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{kind} {name!r} is now {new!r}; use that name in its declaration")
        if kind == "pipeline":
            for line in _folders(name, new):
                self.stdout.write(line)


def _folders(name: str, new: str) -> list[str]:
    """Rename the default checkpoint folder. Returns lines that say where checkpoint and input are."""
    old, target = (data_dir() / "checkpoints" / each for each in (name, new))
    lines = []
    if old.exists() and not target.exists():
        old.rename(target)
        lines.append(f"checkpoint: {str(target)!r}")
    elif not target.exists():
        lines.append("checkpoint: it stays where it is; continue with --checkpoint")
    inputs: Path = data_dir() / "input" / name
    if inputs.exists():
        lines.append(f"input: it stays in {str(inputs)!r}; continue with --input")
    return lines
