"""Run pipelines until they are stopped."""

import logging
import os
import signal
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from tidegauge.pipelines.driver.discovery import find, find_early
from tidegauge.pipelines.driver.run_options import MAX_FAILURES, RunOptions
from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.errors import PipelineError, RuntimeSetupError
from tidegauge.pipelines.spark.user_conf import check_conf
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.ledger import driver_start
from tidegauge.webapp.commands.management.spark_conf import add_conf_option, conf_of
from tidegauge.webapp.commands.management.timespan import parse_timespan

if TYPE_CHECKING:
    from tidegauge.pipelines.checkpoint.files import CheckpointPath
    from tidegauge.pipelines.declare.pipeline import Pipeline
    from tidegauge.pipelines.driver.query import OnBatch

SPARK_UI_PORT = 4040

# Options that only work for a single pipeline, with their names in the parsed options.
OF_ONE = {
    "--checkpoint": "checkpoint",
    "--rebind": "rebind",
    "--accept-gap": "accept_gap",
    "--reprocess": "reprocess",
    "--state": "states",
    "--abort-reprocess": "abort_reprocess",
    "--roll-back": "roll_back",
}

# Options that a later start of the same pipeline needs, too. Others, such as --rebind, are for one start.
LASTING = {
    "--input": "input",
    "--checkpoint": "checkpoint",
    "--files-per-batch": "files_per_batch",
    "--once": "once",
    "--trigger": "trigger",
    "--conf": "conf",
    "--ui": "ui",
    "--fail-fast": "fail_fast",
    "--max-failures": "max_failures",
}

# The exit code of a run with --once whose input partly became dead letters. It differs from that of a failure, because
# a supervisor restarts after a failure.
REJECTED = 3

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = (
        "Run pipelines until SIGTERM or Ctrl-C, which end each after its current batch. Several share one Spark. If "
        "one fails for good, the others keep running, and the exit code is 1 when they have ended. With --once it is "
        "3 if input became dead letters."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "names",
            nargs="+",
            metavar="NAME",
            help="name or declaration of a pipeline, such as acme.orders:orders; `pipelines declared` lists them",
        )
        parser.add_argument("--input", type=Path, help="input folder of each pipeline (default: DATA/input/NAME)")
        parser.add_argument("--checkpoint", help="checkpoint folder, or its URI (default: DATA/checkpoints/NAME)")
        parser.add_argument("--files-per-batch", type=int, help="maximum number of files in a batch")
        parser.add_argument("--once", action="store_true", help="process the existing input, then end")
        parser.add_argument("--trigger", metavar="INTERVAL", help="start a batch at this interval, such as '5 seconds'")
        add_conf_option(parser)
        parser.add_argument(
            "--ui",
            type=int,
            nargs="?",
            const=SPARK_UI_PORT,
            metavar="PORT",
            help="serve Spark's pages (default: from port %(const)s)",
        )
        parser.add_argument("--fail-fast", action="store_true", help="stop all pipelines when one fails for good")
        parser.add_argument(
            "--rebind",
            action="store_true",
            help="accept a different checkpoint; the source continues where the states stopped",
        )
        parser.add_argument(
            "--accept-gap",
            action="store_true",
            help="feed a state or measure again although batches were committed without it; it shows since when it is "
            "complete",
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
            help="reprocess only this state, up to the committed batch of its pipeline; may be repeated",
        )
        parser.add_argument(
            "--accept-shorter",
            action="store_true",
            help="let a reprocess replace the states although its sources have less than the states have counted",
        )
        parser.add_argument(
            "--accept-changes",
            action="store_true",
            help="allow a reprocess whose results differ if they depend on when batches ran (ttl, late events)",
        )
        parser.add_argument(
            "--keep-old",
            default="1d",
            metavar="SPAN",
            help="how long a reprocess keeps the replaced states, such as 7d or 12h; 0d drops them at once "
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
            default=MAX_FAILURES,
            help="end after this many failures in a row without a commit (default: %(default)s)",
        )

    def check_options(self, options: dict[str, Any]) -> None:
        _reprocess_options(options)
        try:
            _check_together(options["names"], options)
            _run_options("", {**options, "checkpoint": options["checkpoint"] or Path()})
            check_conf(conf_of(options["conf"]))
            # Last, because modules of pipelines load Spark.
            declared = [found for name in options["names"] if (found := find_early(name))]
            for each in declared:
                each.arguments(options["input"], options["files_per_batch"])
            _check_together([each.name for each in declared], options)
        except (PipelineError, RuntimeSetupError) as error:
            raise CommandError(str(error), returncode=2) from error

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            declared = [find(name) for name in options["names"]]
            pipelines = [each.pipeline(options["input"], options["files_per_batch"]) for each in declared]
            _check_together([pipeline.name for pipeline in pipelines], options)
            runs = [(pipeline, _run_options(pipeline.name, options)) for pipeline in pipelines]
            spark = {"conf": check_conf(conf_of(options["conf"])), "ui_port": options["ui"]}
        except (PipelineError, RuntimeSetupError) as error:
            raise CommandError(str(error), returncode=2) from error
        spark["modules"] = [each.module for each in declared]
        start = driver_start.of_command("run", list(_lasting(options)))
        named = zip(pipelines, options["names"], strict=True)
        driver_start.remember(start, {pipeline.name: name for pipeline, name in named})
        if len(runs) > 1:
            return self._run_several(runs, spark, options["fail_fast"])
        return self._run_one(*runs[0], spark, options)

    def _run_one(
        self, pipeline: "Pipeline", run_options: RunOptions, spark: dict[str, Any], options: dict[str, Any]
    ) -> None:
        from tidegauge.pipelines.repair.reprocess import abort, roll_back
        from tidegauge.webapp.commands.management.progress import is_wanted, live_progress

        name = pipeline.name
        for option, act in {"abort_reprocess": abort, "roll_back": roll_back}.items():
            if options[option]:
                self._guarded(name, partial(_act, act, name, run_options.checkpoint, spark))
                return _log_clean_end(name)
        how, stopping = _reprocess_options(options), _stop_on_signal()
        txids: list[int] = []
        with live_progress([name], wanted=is_wanted()):
            self._guarded(name, lambda: self._run(pipeline, run_options, stopping, how, spark, txids))
            _end({name: txids}, {})

    def _run(
        self,
        pipeline: "Pipeline",
        options: RunOptions,
        stopping: threading.Event,
        reprocess: dict[str, Any] | None,
        how_spark: dict[str, Any],
        txids: list[int],
    ) -> None:
        from tidegauge.pipelines.driver.announcing import announced
        from tidegauge.pipelines.driver.driver import Driver
        from tidegauge.pipelines.driver.session import check_declarations
        from tidegauge.pipelines.repair.partial_reprocess import PartialReprocess
        from tidegauge.pipelines.repair.reprocess import Reprocess
        from tidegauge.pipelines.spark.session import start_session

        dsn, note = os.environ["DATABASE_URL"], _noting(txids, options)
        if reprocess is None:
            check_declarations(pipeline, dsn)
        # Not while it is reprocessed, because its driver begins after that, hours later.
        with announced([pipeline] if reprocess is None else [], dsn):
            spark = start_session(pipeline.name, packages=pipeline.packages, **how_spark)
            if reprocess is not None:
                kind = PartialReprocess if "states" in reprocess else Reprocess
                how = {"checkpoint": options.checkpoint, "on_batch": note, "stopping": stopping, **reprocess}
                if not kind(pipeline, spark=spark, dsn=dsn, **how).run() or options.once:
                    return
            Driver(pipeline, spark, dsn, options, note, stopping).run()

    def _run_several(
        self, runs: list[tuple["Pipeline", RunOptions]], how_spark: dict[str, Any], fail_fast: bool
    ) -> None:
        from tidegauge.pipelines.driver.announcing import announced
        from tidegauge.pipelines.driver.driver import Driver
        from tidegauge.pipelines.driver.group import FAIR_CONF, DriverGroup
        from tidegauge.pipelines.errors import failure_reason
        from tidegauge.pipelines.spark.session import start_session
        from tidegauge.webapp.commands.management.progress import is_wanted, live_progress

        names = [pipeline.name for pipeline, _ in runs]
        packages = {package for pipeline, _ in runs for package in pipeline.packages}
        stopping, dsn = _stop_on_signal(), os.environ["DATABASE_URL"]
        how_spark["conf"] = FAIR_CONF | how_spark["conf"]
        with live_progress(names, wanted=is_wanted()), announced([each for each, _ in runs], dsn):
            try:
                spark = start_session(", ".join(names), packages=packages, **how_spark)
            except Exception as error:
                raise CommandError(f"Spark did not start: {failure_reason(error)}") from error
            # A session for each, because a pipeline's queries use views that are named in its session.
            txids = {name: list[int]() for name in names}
            drivers = [
                Driver(each, spark.newSession(), dsn, options, _noting(txids[each.name], options), stopping)
                for each, options in runs
            ]
            failures = DriverGroup(drivers, stopping, fail_fast=fail_fast).run()
        _end(txids, failures)

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        from tidegauge.pipelines.errors import failure_reason

        try:
            work()
        except Exception as error:
            is_own = isinstance(error, TidegaugeError | RuntimeSetupError)
            said = str(error) if is_own else f"pipeline {name!r} failed: {failure_reason(error)}"
            raise CommandError(driver_start.of_pipeline(name).spelled(said, elsewhere=False)) from error


def _lasting(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the options to record, each with its value; empty for one without a value."""
    for option, name in LASTING.items():
        given = options[name]
        if given is True:
            yield option, ""
        elif given and (option, given) != ("--max-failures", MAX_FAILURES):
            for value in given if isinstance(given, list) else [given]:
                yield option, str(value)


def _act(act: Callable[..., None], name: str, checkpoint: "CheckpointPath", how_spark: dict[str, Any]) -> None:
    """Abort or roll back. Starts Spark if the checkpoint is in a store, because only Spark can access that."""
    from tidegauge.pipelines.checkpoint.files import StorePath
    from tidegauge.pipelines.spark.session import start_session

    if isinstance(checkpoint, StorePath):
        start_session(name, **how_spark)
    act(name, os.environ["DATABASE_URL"], checkpoint)


def _noting(txids: list[int], options: RunOptions) -> "OnBatch":
    """Return a callback that collects the txids of a run with --once; in other runs they would pile up without use."""
    return lambda batch: txids.append(batch.txid) if options.once else None


def _end(committed: Mapping[str, list[int]], failures: Mapping[str, Exception]) -> None:
    """Report how each pipeline ended. Raises CommandError if one has failed, or input of one became dead letters.

    committed: the batches of a run with --once, by pipeline. failures: of several pipelines, by name.
    """
    from tidegauge.pipelines.errors import failure_reason

    lines = {
        name: driver_start.of_pipeline(name).spelled(failure_reason(failures[name]), elsewhere=False)
        if name in failures
        else _rejected(name, txids)
        for name, txids in committed.items()
    }
    for name, line in lines.items():
        if not line:
            _log_clean_end(name)
    listed = "".join(f"\n  {name}: {line}" for name, line in lines.items() if line)
    if failures:
        raise CommandError(f"{len(failures)} of {len(committed)} pipelines failed:{listed}")
    if listed:
        raise CommandError(f"ended, but input became dead letters:{listed}", returncode=REJECTED)


def _rejected(name: str, txids: list[int]) -> str:
    """Return a text about the dead letters of some batches; empty if there are none."""
    from tidegauge.pipelines.connections import connect
    from tidegauge.state_backends.dead_letters.letters import rejected_letters

    if not txids:
        return ""
    with connect(os.environ["DATABASE_URL"], f"{name} dead letters") as conn:
        letters = rejected_letters(conn, name, txids)
    return f"{letters.number} dead letters, the first: {letters.first_reason}" if letters else ""


def _log_clean_end(name: str) -> None:
    logger.info("pipeline %s ended cleanly", name, extra={"pipeline": name})


def _run_options(name: str, options: dict[str, Any]) -> RunOptions:
    return RunOptions(
        options["checkpoint"] or data_dir() / "checkpoints" / name,
        once=options["once"],
        interval=options["trigger"],
        rebind=options["rebind"],
        accept_gap=options["accept_gap"],
        max_failures=options["max_failures"],
    )


def _check_together(names: list[str], options: dict[str, Any]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise PipelineError(f"pipeline {twice[0]!r} is named twice")
    given = [option for option, name in OF_ONE.items() if options[name]]
    if len(names) > 1 and given:
        raise PipelineError(f"{given[0]} works for one pipeline, but {', '.join(names)} were named; run it for each")


def _reprocess_options(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of a reprocess; None if none was requested."""
    if options["states"] and (not options["reprocess"] or options["accept_shorter"]):
        raise CommandError("--state requires --reprocess, and excludes --accept-shorter", returncode=2)
    how: dict[str, Any] = {
        "keep_old": parse_timespan(options["keep_old"], "--keep-old"),
        "accept_shorter": options["accept_shorter"],
    }
    if options["states"]:
        how = {"states": options["states"]}
    return {**how, "accept_changes": options["accept_changes"]} if options["reprocess"] else None


def _stop_on_signal() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    # Called before Spark starts, because a signal must also work in the several seconds that this takes.
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping
