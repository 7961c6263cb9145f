"""Count a pipeline's history from files or a table, then continue with the pipeline's own source."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import RuntimeSetupError, failure_reason
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.ledger import driver_start


class Command(BaseCommand):
    help = (
        "Count the history from before a pipeline's first batch, from the source at MODULE:SOURCE, such as exported "
        "files. The pipeline's own source then continues, and starts where its declaration says."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="which pipeline")
        parser.add_argument("--from", dest="history", required=True, metavar="MODULE:SOURCE", help="the history")
        parser.add_argument("--input", type=Path, help="folder, for a function that takes one")
        parser.add_argument("--checkpoint", help="checkpoint folder, or its URI (default: DATA/checkpoints/NAME)")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["name"]
        try:
            done = _backfill(name, options)
        except (TidegaugeError, RuntimeSetupError) as error:
            raise CommandError(str(error)) from error
        except Exception as error:
            raise CommandError(f"pipeline {name!r}: its backfill failed: {failure_reason(error)}") from error
        self.stdout.write(
            f"pipeline {name!r}: history counted up to batch {done}; `tidegauge run {name}` reads its own source next"
        )


def _backfill(name: str, options: dict[str, Any]) -> int | None:
    # Imported here, because Django imports every command, and these load Spark.
    from tidegauge.pipelines.driver.discovery import find
    from tidegauge.pipelines.repair.backfill import Backfill, history_source
    from tidegauge.pipelines.spark.session import start_session

    declared = find(name)
    pipeline, history = declared.pipeline(), history_source(options["history"], options["input"])
    given = {"--from": options["history"], "--input": options["input"], "--checkpoint": options["checkpoint"]}
    start = driver_start.of_command("backfill", [(option, str(value)) for option, value in given.items() if value])
    driver_start.remember(start, {pipeline.name: name})
    packages = {*pipeline.packages, *history.packages}
    modules = [declared.module, options["history"].partition(":")[0]]
    spark = start_session(f"{pipeline.name} backfill", packages=packages, modules=modules)
    checkpoint = options["checkpoint"] or data_dir() / "checkpoints" / pipeline.name
    return Backfill(pipeline, history, options["history"], spark, os.environ["DATABASE_URL"], checkpoint).run()
