"""Run one pipeline until it is stopped: the door to pipelines.driver."""

import os
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pipelines.embedded.data_dir import data_dir
from pipelines.errors import PipelineError, RuntimeSetupError
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
        parser.add_argument(
            "--reprocess",
            action="store_true",
            help="feed the states anew from the start of the input while the old ones are served, swap, then go on; "
            "stopped, it goes on where it was",
        )
        parser.add_argument(
            "--abort-reprocess", action="store_true", help="give an unfinished reprocess up, and do nothing else"
        )
        parser.add_argument(
            "--max-failures",
            type=int,
            default=8,
            help="how many failures in a row end it, with no batch committed between (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # Here and not above: `manage.py help` and the web should not wait for Spark.
        from pipelines.driver import RunOptions
        from pipelines.jobs import job
        from pipelines.reprocess import abort

        name = options["name"]
        try:
            pipeline = job(name, options["input"] or data_dir() / "input" / name, options["files_per_batch"])
            run_options = RunOptions(
                options["checkpoint"] or data_dir() / "checkpoints" / name,
                once=options["once"],
                rebind=options["rebind"],
                max_failures=options["max_failures"],
            )
        except PipelineError as error:
            raise CommandError(str(error), returncode=2) from error
        if options["abort_reprocess"]:
            return self._guarded(name, lambda: abort(name, os.environ["DATABASE_URL"], run_options.checkpoint))
        # From here on: the order to end may come while Spark is still starting.
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        return self._guarded(name, lambda: self._run(pipeline, run_options, stopping, options["reprocess"]))

    def _run(self, pipeline: Any, options: Any, stopping: threading.Event, reprocess: bool) -> None:
        from pipelines.driver import Driver
        from pipelines.reprocess import Reprocess
        from pipelines.spark import start_session

        def note(batch: Any) -> None:
            self.stderr.write(f"{pipeline.name}: batch {batch.txid} committed (attempt {batch.attempt})")

        spark, dsn = start_session(pipeline.name, packages=pipeline.packages), os.environ["DATABASE_URL"]
        if reprocess and not Reprocess(pipeline, spark, dsn, options.checkpoint, stopping=stopping).run():
            return
        if not (reprocess and options.once):
            Driver(pipeline, spark, dsn, options, stopping=stopping).run()

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        from pipelines.errors import failure_reason

        try:
            work()
        except (TidemarkError, RuntimeSetupError) as error:
            raise CommandError(str(error)) from error
        except Exception as error:
            raise CommandError(f"pipeline {name!r} failed: {failure_reason(error)}") from error
        self.stderr.write(f"{name}: ended cleanly")
