"""Runs drivers in separate processes, as users do. A benchmark decides when they get files, one per batch."""

import importlib
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import psycopg
from pyspark.sql import SparkSession

from benchmarks.batch_times import WHOLE
from benchmarks.input_files import lay_out_flights
from benchmarks.servers import database, database_url
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.spark.session import start_session
from tidegauge.webapp.commands.management.child_process import Child

WITHIN_SECONDS = 300.0  # limit for the start of a driver, and for a round


@dataclass(frozen=True)
class Drivers:
    """Running drivers by the name of their pipeline. Each has an input folder of the same name in `root`."""

    conn: psycopg.Connection
    root: Path
    children: Mapping[str, Child]

    def feed(self, names: list[str], events: int, files: int) -> tuple[float, float]:
        """Give each of these pipelines its files of flights at the same time, and wait until all are committed.

        Returns the seconds until then, and the median ms of a trigger, with Spark's bookkeeping.
        """
        before = {name: self._batches(name) for name in names}
        for name in names:
            lay_out_flights(self.root / "next" / name, events, files)
        started = time.monotonic()
        for name in names:
            for path in sorted((self.root / "next" / name).iterdir()):
                path.rename(self.root / name / f"{before[name]:06}-{path.name}")
        self._wait_until(lambda: all(self._batches(name) == before[name] + files for name in names))
        seconds = time.monotonic() - started
        self._wait_until(lambda: all(len(self._triggers(name, before[name])) == files for name in names))
        return seconds, statistics.median(ms for name in names for ms in self._triggers(name, before[name]))

    def _batches(self, name: str) -> int:
        """Return how many batches are committed."""
        row = self.conn.execute(
            "SELECT count(*) FROM tidegauge.batch WHERE pipeline = %s AND committed_at IS NOT NULL", [name]
        ).fetchone()
        return row[0] if row else 0

    def _triggers(self, name: str, after: int) -> list[float]:
        """Return the ms of the triggers that Spark has reported so far; it reports shortly after the commit."""
        rows = self.conn.execute(
            "SELECT (metrics -> 'duration_ms' ->> %s)::float8 FROM tidegauge.batch WHERE pipeline = %s "
            "ORDER BY txid OFFSET %s",
            [WHOLE, name, after],
        )
        return [milliseconds for (milliseconds,) in rows if milliseconds is not None]

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_SECONDS
        while not is_done():
            for child in self.children.values():
                if child.exit_code() is not None:
                    raise RuntimeError(f"{child.name} has ended; the end of {child.log}:\n{child.last_lines()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the batches were not committed and reported within {WITHIN_SECONDS} s")
            time.sleep(0.02)


@contextmanager
def running(names: list[str], module: str) -> Iterator[Drivers]:
    """Run a driver for each name until the block ends, all on one new database.

    module: the benchmark's; its function `pipeline` makes a pipeline from a name and an input folder.
    """
    with ExitStack() as stack:
        conn = stack.enter_context(database())
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegauge-bench-")))
        environ = {"DATABASE_URL": database_url(conn), "PYTHONPATH": str(REPOSITORY)}
        children = {}
        for name in names:
            (root / name).mkdir()
            (root / "next" / name).mkdir(parents=True)
            command = [sys.executable, "-m", "benchmarks.drivers", module, name, str(root)]
            with patch.dict(os.environ, environ):
                children[name] = Child(name, command, root / f"{name}.log", stop_seconds=40.0)
            stack.callback(children[name].stop)
        yield Drivers(conn, root, children)


def drive(pipeline: Pipeline, root: Path, spark: SparkSession | None = None) -> None:
    """Run the driver of one pipeline until SIGTERM. spark: by default a session of its own."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    options = RunOptions(root / f"checkpoint_{pipeline.name}")
    spark = spark or start_session(pipeline.name)
    Driver(pipeline, spark, os.environ["DATABASE_URL"], options, stopping=stopping).run()


if __name__ == "__main__":
    module, name, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    drive(importlib.import_module(module).pipeline(name, root / name), root)
