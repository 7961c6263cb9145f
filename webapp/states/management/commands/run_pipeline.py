"""Run one pipeline until it is stopped."""

import os
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pipelines.embedded.data_dir import data_dir
from pipelines.errors import PipelineError, RuntimeSetupError
from state_backends.errors import TidemarkError
from webapp.states.management.timespan import parse_timespan


class Command(BaseCommand):
    help = "Run a pipeline until SIGTERM or Ctrl-C, which end it after the current batch."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="which pipeline, as listed in pipelines/jobs/__init__.py")
        parser.add_argument("--input", type=Path, help="input folder (default: DATA/input/NAME)")
        parser.add_argument("--checkpoint", type=Path, help="checkpoint folder (default: DATA/checkpoints/NAME)")
        parser.add_argument("--files-per-batch", type=int, help="maximum number of files in a batch")
        parser.add_argument("--once", action="store_true", help="process the existing input, then end")
        parser.add_argument(
            "--rebind",
            action="store_true",
            help="accept another checkpoint; the source continues where the states stopped",
        )
        parser.add_argument(
            "--accept-gap",
            action="store_true",
            help="feed a state or measure again that batches were committed without; it says since when it is complete",
        )
        parser.add_argument(
            "--reprocess",
            action="store_true",
            help="process the input again from its start while the existing states are served, swap the states, then "
            "continue; if interrupted, it resumes",
        )
        parser.add_argument(
            "--state",
            action="append",
            dest="states",
            metavar="STATE",
            help="reprocess this state alone, up to the batch that its pipeline has committed; may be repeated",
        )
        parser.add_argument(
            "--accept-shorter",
            action="store_true",
            help="let a reprocess replace the states although its sources have less than the states have counted",
        )
        parser.add_argument(
            "--keep-old",
            default="1d",
            metavar="SPAN",
            help="how long a reprocess keeps the states that it replaces, such as 7d or 12h; 0d drops them at once "
            "(default: %(default)s)",
        )
        parser.add_argument(
            "--abort-reprocess", action="store_true", help="abort an unfinished reprocess and do nothing else"
        )
        parser.add_argument(
            "--roll-back",
            action="store_true",
            help="put back the states that the last reprocess replaced, and do nothing else; stop the driver first",
        )
        parser.add_argument(
            "--max-failures",
            type=int,
            default=8,
            help="end after this many failures in a row without a commit (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # Imported here, since other commands and the web should not load Spark.
        from pipelines.driver import RunOptions
        from pipelines.jobs import job
        from pipelines.reprocess import abort, roll_back

        name = options["name"]
        try:
            pipeline = job(name, options["input"] or data_dir() / "input" / name, options["files_per_batch"])
            run_options = RunOptions(
                options["checkpoint"] or data_dir() / "checkpoints" / name,
                once=options["once"],
                rebind=options["rebind"],
                accept_gap=options["accept_gap"],
                max_failures=options["max_failures"],
            )
        except PipelineError as error:
            raise CommandError(str(error), returncode=2) from error
        for option, act in {"abort_reprocess": abort, "roll_back": roll_back}.items():
            if options[option]:
                return self._guarded(name, partial(act, name, os.environ["DATABASE_URL"], run_options.checkpoint))
        if options["states"] and (not options["reprocess"] or options["accept_shorter"]):
            raise CommandError("--state goes with --reprocess, and not with --accept-shorter", returncode=2)
        how = {
            "keep_old": parse_timespan(options["keep_old"], "--keep-old"),
            "accept_shorter": options["accept_shorter"],
        }
        if options["states"]:
            how = {"states": options["states"]}
        reprocess = how if options["reprocess"] else None
        # Set before Spark starts, which takes several seconds.
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        return self._guarded(name, lambda: self._run(pipeline, run_options, stopping, reprocess))

    def _run(self, pipeline: Any, options: Any, stopping: threading.Event, reprocess: dict[str, Any] | None) -> None:
        from pipelines.driver import Driver
        from pipelines.partial_reprocess import PartialReprocess
        from pipelines.reprocess import Reprocess
        from pipelines.spark import start_session

        spark, dsn = start_session(pipeline.name, packages=pipeline.packages), os.environ["DATABASE_URL"]
        if reprocess is not None:
            kind = PartialReprocess if "states" in reprocess else Reprocess
            again = kind(pipeline, spark=spark, dsn=dsn, checkpoint=options.checkpoint, stopping=stopping, **reprocess)
            if not again.run() or options.once:
                return
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
