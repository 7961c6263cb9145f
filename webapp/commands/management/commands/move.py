"""Move a state to another backend or to another pipeline."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.state_backends import BACKENDS
from tidegauge.state_backends.errors import TidegaugeError, UnknownPipelineError


class Command(BaseCommand):
    help = (
        "Move the committed rows of a state to another backend, or let another pipeline feed it. Stop the drivers "
        "first, and change the declaration afterwards."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", metavar="STATE", help="which state")
        where = parser.add_mutually_exclusive_group(required=True)
        where.add_argument("--to", choices=list(BACKENDS), help="the backend")
        where.add_argument("--pipeline", metavar="NAME", help="the pipeline; stop its driver, too")

    def handle(self, *args: Any, **options: Any) -> None:
        from tidegauge.webapp.maintenance import operations

        state, backend, pipeline = options["state"], options["to"], options["pipeline"]
        try:
            spout = None if pipeline is None else _spout_of_new(pipeline)
            rows = operations.move_state(
                state=state, backend=backend, pipeline=pipeline, spout=spout, requested_by="command move"
            )
        except TidegaugeError as error:
            raise CommandError(str(error)) from error
        if backend is not None:
            said = f"{rows} rows moved to {backend}; declare it with backend={backend!r}"
        else:
            said = f"pipeline {pipeline!r} feeds it from its next batch on; move its declaration there"
        self.stdout.write(f"state {state!r}: {said}")


def _spout_of_new(name: str) -> str | None:
    """Return the spout of a pipeline that is declared but has not run yet; None if it has run."""
    # Imported here, because it loads Spark.
    from tidegauge.pipelines.driver.discovery import find
    from tidegauge.pipelines.errors import PipelineError
    from tidegauge.webapp.catalog import queries

    if name in queries.pipeline_names():
        return None
    try:
        return find(name).pipeline().source.spout
    except PipelineError as error:
        raise UnknownPipelineError(f"pipeline {name!r} has not run yet, and {error}") from error
