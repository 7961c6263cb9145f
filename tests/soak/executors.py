"""Executors: processes that run the product's own tasks, each forked off the process that the driver was forked off.

They outlive a driver that is killed, as those of a cluster do, so its tasks may write late. A task that fails is run
again, one that does not move counts as lost and is run again beside itself, which Spark does too.
"""

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
import pyarrow as pa

from tests.soak import switches
from tests.soak.fork_server import FORK
from tests.soak.points import Points
from tidegauge.pipelines.batch.tasks import MergeTask, written
from tidegauge.pipelines.declare.context import BatchContext

# Spark's spark.task.maxFailures.
MAX_FAILURES = 4
# How long a stopped process may take before its executor counts as lost.
LOST_SECONDS = 1.0
POLL_SECONDS = 0.1


class TaskFailedError(Exception):
    """A task failed as often as it may. The message is its traceback, as Spark passes it on."""


@dataclass
class Running:
    """One attempt of one task."""

    task: int
    process: BaseProcess
    answer: Connection
    since: float


class Executors:
    """Runs the tasks of a batch side by side."""

    def run(self, tasks: Sequence[tuple[MergeTask, pa.RecordBatch]]) -> list[int]:
        """Run each task until it has succeeded once; return the keys each wrote.

        Raises TaskFailedError.
        """
        keys: list[int | None] = [None] * len(tasks)
        failures = [0] * len(tasks)
        running = [self._start(place, *task) for place, task in enumerate(tasks)]
        while any(found is None for found in keys):
            for ended in self._ended(running):
                running.remove(ended)
                outcome = _outcome(ended)
                if isinstance(outcome, int):
                    keys[ended.task] = outcome
                    continue
                failures[ended.task] += 1
                if failures[ended.task] >= MAX_FAILURES:
                    raise TaskFailedError(outcome)
                running.append(self._start(ended.task, *tasks[ended.task]))
        return [found or 0 for found in keys]

    def _start(self, place: int, task: MergeTask, rows: pa.RecordBatch) -> Running:
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_run, args=(theirs, task, rows, os.getpid(), dict(os.environ)), daemon=False)
        process.start()
        theirs.close()
        return Running(place, process, ours, time.monotonic())

    def _ended(self, running: Sequence[Running]) -> list[Running]:
        """Return those that have ended, or count as lost; waits a moment if there are none."""
        ready = wait([each.answer for each in running], POLL_SECONDS)
        return [each for each in running if each.answer in ready or _is_lost(each)]


def _is_lost(running: Running) -> bool:
    if time.monotonic() - running.since < LOST_SECONDS:
        return False
    try:
        return psutil.Process(running.process.pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False  # its end of the pipe says so


def _outcome(ended: Running) -> int | str:
    """Return the number of keys, or why it failed."""
    if not ended.answer.poll():
        return "the executor is lost"
    try:
        return ended.answer.recv()
    except EOFError:
        return f"the executor ended (exit code {ended.process.exitcode})"


def _run(answer: Connection, task: MergeTask, rows: pa.RecordBatch, driver: int, environ: Mapping[str, str]) -> None:
    with suppress(PermissionError):  # the driver has ended
        os.setpgid(0, driver)
    os.environ.update(environ)
    points = Points.of_environment()
    switches.turn_off_ordered()
    try:
        points.passes("task_begins")
        with switches.replaced(BatchContext, "session", _with_points(points)):
            [(_, done)] = written([task], [(0, rows)])
            outcome: int | str = done.keys
    except Exception:
        outcome = traceback.format_exc()
    try:
        answer.send(outcome)
    except OSError:
        os._exit(1)  # its driver has ended


def _with_points(points: Points) -> Callable[..., Any]:
    """Return BatchContext.session with a point before the merge and one behind it."""
    opened = BatchContext.session

    def session(context: BatchContext, *of_what: Any) -> Any:
        made = opened(context, *of_what)
        merge = made.merge

        def merged(batches: Any, **run: Any) -> int:
            points.passes("task_writing")
            keys = merge(batches, **run)
            points.passes("task_wrote")
            return keys

        made.merge = merged
        return made

    return session
