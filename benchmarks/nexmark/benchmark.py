"""nexmark: seven queries of the Nexmark benchmark, compared with the same queries in Spark alone, in core seconds.

A figure is the processor time of a query in seconds, which is Nexmark's cores times time: of this process, Java, the
Python workers and PostgreSQL, from the start of the query to its end, with its batches' bookkeeping. Both read the same
Parquet files in the same session, one file per batch. Events come from the benchmark's own definition, at 10,000 a
second of event time, so a million events last 100 s. The queries are 5 (hot auctions), 7 (highest bid), 11 (sessions),
12 (processing time), 17 (statistics per auction and day), 18 (last bid) and 19 (top ten bids); a test compares their
results with a plain model. `spark_alone` keeps its state in Spark's RocksDB store and discards the results.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import psycopg
from pyspark.sql import SparkSession

from benchmarks.cases import Case, median_case
from benchmarks.ingest import STATE_STORE, drain
from benchmarks.nexmark.events import lay_out_events
from benchmarks.nexmark.queries import QUERIES, pipeline
from benchmarks.nexmark.spark_alone import frame
from benchmarks.servers import database, database_url
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.spark.session import start_session

UNEQUAL = {
    "spark_alone": (
        "Its state is on the local disk of the machine that runs the tasks, where no other program can look it up, and "
        "its results are discarded. Its query 5 emits a window only when it has closed, and one of the auctions that "
        "tie; its query 7 keeps one of the bids that tie; its query 11 emits sessions only when they have closed, as "
        "ours does, but cannot show open ones. Spark's sessions also join events that are exactly ten seconds apart. "
        "Its checkpoints are written with Spark's default setting, which takes longer than ours."
    )
}
SEEDS = "the events of a file: the number of its first event, from 0"

EVENTS, FILES, ROUNDS = 1_000_000, 10, 5


def run(events: int = EVENTS, rounds: int = ROUNDS) -> Iterator[Case]:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegauge-bench-")))
        folder, warm_up = root / "events", root / "warm_up"
        lay_out_events(folder, events, FILES)
        lay_out_events(warm_up, max(events // FILES, FILES), 2)
        spark = start_session("benchmark")
        stack.callback(spark.stop)
        for setting, value in STATE_STORE.items():
            spark.conf.set(setting, value)
        for query in QUERIES:
            for run_query in CASES.values():
                run_query(query, spark, warm_up)
            seconds: dict[str, list[float]] = {name: [] for name in CASES}
            for _ in range(rounds):
                for name, run_query in CASES.items():
                    seconds[name].append(run_query(query, spark, folder))
            yield median_case(f"{query}_tidegauge", seconds["tidegauge"], "s", {"spark_alone": seconds["spark_alone"]})
            yield median_case(f"{query}_spark_alone", seconds["spark_alone"], "s")


def _tidegauge(query: str, spark: SparkSession, folder: Path) -> float:
    with database() as conn, tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as checkpoint:
        before = core_seconds(conn)
        options = RunOptions(Path(checkpoint), once=True)
        Driver(pipeline(query, folder), spark, database_url(conn), options).run()
        return core_seconds(conn) - before


def _spark_alone(query: str, spark: SparkSession, folder: Path) -> float:
    with database() as conn, tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as checkpoint:
        before = core_seconds(conn)
        rows, mode = frame(query, folder, spark)
        drain(rows.writeStream.format("noop").outputMode(mode), Path(checkpoint))
        return core_seconds(conn) - before


CASES: dict[str, Callable[[str, SparkSession, Path], float]] = {
    "spark_alone": _spark_alone,
    "tidegauge": _tidegauge,
}


def core_seconds(conn: psycopg.Connection) -> float:
    """Return the processor seconds so far of this process, PostgreSQL, and the processes that they have started.

    Raises RuntimeError if PostgreSQL does not run on this machine.
    """
    roots = [psutil.Process(), _postgresql(conn)]
    every = {process.pid: process for root in roots for process in (root, *root.children(recursive=True))}
    return sum(map(_used, every.values()))


def _postgresql(conn: psycopg.Connection) -> psutil.Process:
    row = conn.execute("SELECT current_setting('data_directory')").fetchone()
    assert row is not None
    try:
        return psutil.Process(int(Path(row[0], "postmaster.pid").read_text().split()[0]))
    except (OSError, psutil.NoSuchProcess) as error:
        raise RuntimeError(
            "cannot read the processor time of PostgreSQL, because it does not run on this machine; unset DATABASE_URL"
        ) from error


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # its parent has the time of a process that has ended
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)
