"""Run one pipeline until it is stopped: the door to pipelines.driver."""

import os
import signal
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pipelines.errors import PipelineError
from pipelines.runtime.errors import RuntimeSetupError
from pipelines.runtime.home import data_dir
from state_backends.errors import TidemarkError


class Command(BaseCommand):
    help = "Run a pipeline until SIGTERM or Ctrl-C, which end it after the batch at hand."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="which pipeline, as listed in pipelines/jobs/__init__.py")
        parser.add_argument("--input", type=Path, help="the folder that input lands in (default: DATA/input/NAME)")
        parser.add_argument("--checkpoint", type=Path, help="Spark's folder (default: DATA/checkpoints/NAME)")
        parser.add_argument("--files-per-batch", type=int, help="how many files one batch takes at most")
        parser.add_argument("--once", action="store_true", help="run through the input there is, then end")
        parser.add_argument(
            "--rebind",
            action="store_true",
            help="accept another checkpoint; the source goes on where the states stopped",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # Here and not above: `manage.py help` and the web should not wait for Spark.
        from pipelines.driver import Driver, RunOptions, failure_reason
        from pipelines.jobs import job
        from pipelines.session import start_session

        name = options["name"]
        try:
            pipeline = job(name, options["input"] or data_dir() / "input" / name, options["files_per_batch"])
        except PipelineError as error:
            raise CommandError(str(error), returncode=2) from error
        checkpoint = options["checkpoint"] or data_dir() / "checkpoints" / name
        driver = Driver(
            pipeline,
            start_session(name, packages=pipeline.packages),
            os.environ["DATABASE_URL"],
            RunOptions(checkpoint, once=options["once"], rebind=options["rebind"]),
            on_batch=lambda batch: self.stderr.write(f"{name}: batch {batch.txid} committed (attempt {batch.attempt})"),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: driver.stop())
        try:
            driver.run()
        except (TidemarkError, RuntimeSetupError) as error:
            raise CommandError(str(error)) from error
        except Exception as error:
            raise CommandError(f"pipeline {name!r} failed: {failure_reason(error)}") from error
        self.stderr.write(f"{name}: ended cleanly")
