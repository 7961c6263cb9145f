"""Retire a state or a pipeline: keep it as it is, archive it as Parquet, or drop it."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.schema.former import Fate, Kind
from tidegauge.webapp.commands.management.confirmation import confirm

if TYPE_CHECKING:
    from tidegauge.pipelines.checkpoint.files import CheckpointPath
    from tidegauge.pipelines.declare.pipeline import Pipeline

WHAT_GOES = {
    Fate.KEPT: "{whole} is still served as it is now, but no longer fed",
    Fate.ARCHIVED: "{whole}: rows and changelog are written to {folder} as Parquet, read back, and dropped",
    Fate.DROPPED: "{whole}: rows and changelog are dropped; this cannot be undone",
}

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = (
        "Retire a state that is no longer declared, or with --pipeline a pipeline with all its states, its checkpoint "
        "and whatever its sources keep on their servers, such as a replication slot. Stop the driver first. See "
        "docs/life-of-a-pipeline.md."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", nargs="?", metavar="STATE", help="which state")
        parser.add_argument("--pipeline", metavar="NAME", help="a pipeline, with all its states")
        fate = parser.add_mutually_exclusive_group(required=True)
        fate.add_argument("--keep", action="store_true", help="keep its rows and serve them")
        fate.add_argument("--archive", type=Path, metavar="DIR", help="write it to DIR/STATE as Parquet, then drop it")
        fate.add_argument("--drop", action="store_true", help="drop it")
        fate.add_argument("--forget", action="store_true", help="free the name of a retired or renamed one")
        parser.add_argument("--checkpoint", help="checkpoint folder, or its URI (default: DATA/checkpoints/NAME)")
        parser.add_argument(
            "--no-sources", action="store_true", help="do not drop what the pipeline's sources keep on their servers"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def check_options(self, options: dict[str, Any]) -> None:
        if (options["state"] is None) == (options["pipeline"] is None):
            raise CommandError("retire needs either a STATE or --pipeline NAME", returncode=2)

    def handle(self, *args: Any, **options: Any) -> None:
        self.check_options(options)
        state, pipeline = options["state"], options["pipeline"]
        kind: Kind = "state" if pipeline is None else "pipeline"
        try:
            if options["forget"]:
                return self._forget(kind, state or pipeline)
            for line in self._state(state, options) if pipeline is None else self._pipeline(pipeline, options):
                self.stdout.write(line)
        except (TidegaugeError, RuntimeSetupError) as error:
            raise CommandError(str(error)) from error

    def _forget(self, kind: Kind, name: str) -> None:
        from tidegauge.webapp.maintenance import operations

        operations.forget_retirement(kind=kind, name=name, requested_by="command retire")
        self.stdout.write(f"{kind} {name!r}: its name is free")

    def _state(self, name: str, options: dict[str, Any]) -> Iterator[str]:
        from tidegauge.pipelines.repair.life import readers_of
        from tidegauge.webapp.maintenance import operations

        if reading := list(readers_of(name)):
            raise CommandError(f"state {name!r}: {'; '.join(reading)}; take it out there first")
        fate, folder = _fate(options)
        confirm(self, WHAT_GOES[fate].format(whole=f"state {name!r}", folder=folder), yes=options["yes"])
        yield from operations.retire(kind="state", name=name, fate=fate, folder=folder, requested_by="command retire")

    def _pipeline(self, name: str, options: dict[str, Any]) -> Iterator[str]:
        # Imported here, because retiring a state should not load Spark.
        from tidegauge.pipelines.repair.life import drop_checkpoint, drop_sources, held_sources, readers_of
        from tidegauge.webapp.catalog import queries
        from tidegauge.webapp.maintenance import operations

        found = queries.find_former("pipeline", name)
        if found is not None and not found.unfinished and found.fate != Fate.KEPT:
            raise CommandError(str(found))
        states = (
            []
            if found is not None and found.fate != Fate.KEPT
            else [each.name for each in queries.states(queries.pipeline(name).name)]
        )
        for state in states:
            if reading := [line for line in readers_of(state) if f"pipeline {name!r}" not in line]:
                raise CommandError(f"state {state!r}: {'; '.join(reading)}; take it out there first")
        declared = None if options["no_sources"] else _declared(name)
        checkpoint = _checkpoint(name, options["checkpoint"])
        fate, folder = _fate(options)
        whole = f"pipeline {name!r} with {', '.join(map(repr, states)) or 'no state'}"
        goes = [WHAT_GOES[fate].format(whole=whole, folder=folder), f"checkpoint {str(checkpoint)!r} is removed"]
        goes += [f"{source}: what its server keeps is dropped" for source in held_sources(declared)] if declared else []
        confirm(self, "\n".join(goes), yes=options["yes"])
        yield from operations.retire(
            kind="pipeline", name=name, fate=fate, folder=folder, requested_by="command retire"
        )
        found = queries.find_former("pipeline", name)
        if found is not None and found.unfinished:
            yield from drop_sources(declared) if declared else ()
            yield from drop_checkpoint(checkpoint, found.checkpoint_id)
            # Last, so that a retirement that was interrupted stays unfinished, and the next call completes it.
            operations.finish_retirement(name)
        yield f"pipeline {name!r}: nothing else is left of it"


def _checkpoint(name: str, given: str | None) -> "CheckpointPath":
    """Return the checkpoint of a pipeline. Starts Spark if it is in a store, because only Spark can access that."""
    from tidegauge.pipelines.checkpoint.files import StorePath, checkpoint_folder
    from tidegauge.pipelines.spark.session import start_session

    folder = checkpoint_folder(given or data_dir() / "checkpoints" / name)
    if isinstance(folder, StorePath):
        start_session(f"{name} retire")
    return folder


def _fate(options: dict[str, Any]) -> tuple[Fate, Path | None]:
    if options["archive"] is not None:
        return Fate.ARCHIVED, options["archive"].absolute()
    return (Fate.KEPT if options["keep"] else Fate.DROPPED), None


def _declared(name: str) -> "Pipeline":
    from tidegauge.pipelines.driver.discovery import find
    from tidegauge.pipelines.errors import PipelineError

    try:
        return find(name).pipeline()
    except PipelineError as error:
        raise CommandError(
            f"{error}; without its declaration it is not known what its sources keep on their servers, such as a "
            "replication slot: restore the declaration, or use --no-sources"
        ) from error
