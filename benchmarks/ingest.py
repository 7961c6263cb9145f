"""ingest: events per second through a whole pipeline, compared with Spark without a sink, its state store, and a loop.

All cases read the same files in the same session, one file per batch, and do the same group-by; a batch's time includes
Spark's bookkeeping. `tidegauge` is the driver as users run it. `noop` discards the result, so it is the upper limit.
`rocksdb` is Spark's own streaming aggregate, which is also exact, in Spark's own store. `executemany` is the usual
hand-written upsert, which counts replays twice.

The checkpoints of the three references are written with Spark's default setting, which takes longer than the setting of
Tidegauge's sessions.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.batch_times import INSIDE, WHOLE, Milliseconds, batch_times, call_spans, job_spans, medians, timeline
from benchmarks.cases import Case, compared
from benchmarks.input_files import SCHEMA, Totals, lay_out_sales
from benchmarks.rows import SALES
from benchmarks.servers import database, database_url
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.sources.files.formats import ParquetFiles
from tidegauge.pipelines.spark.session import start_session
from tidegauge.state_backends import BatchLedger

UNEQUAL = {
    "noop": (
        "It discards the result, so it is a limit and not a peer: no key is read or written, and no ledger has the "
        "batch."
    ),
    "rocksdb": (
        "Its state is on the local disk of the machine that runs the tasks, and in the checkpoint, where no other "
        "program can look it up. The updated rows are discarded."
    ),
    "executemany": (
        "It keeps one version of each row, without the batch's id. The driver collects the rows and writes them over "
        "one connection into a table with default settings."
    ),
}
SEEDS = "the sales of file n: n, from 0"

EVENTS, BATCHES, WARM_UP = 5_000_000, 10, 3
ROUNDS = 5
REFERENCES = ("noop", "rocksdb", "executemany")
STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BY_HAND = (
    "INSERT INTO by_hand AS t (shop, n, total) VALUES (%s, %s, %s) "
    "ON CONFLICT (shop) DO UPDATE SET n = t.n + excluded.n, total = t.total + excluded.total"
)


@dataclass(frozen=True)
class Input:
    """A folder of files, and the aggregates of all its events."""

    folder: Path
    totals: Totals

    def source(self) -> ParquetFiles:
        return ParquetFiles(self.folder, schema=SCHEMA, files_per_batch=1)

    def stream(self, spark: SparkSession) -> DataFrame:
        """Return the same files as a plain Spark stream."""
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.folder))


@dataclass
class Runs:
    """The batches of one case after warm-up, over all rounds: Spark's phases, and the parts of addBatch, name to ms."""

    phases: list[Milliseconds] = field(default_factory=list)
    inside: list[Milliseconds] = field(default_factory=list)

    def rates(self, events: int) -> list[float]:
        return [1000 * events / batch[WHOLE] for batch in self.phases]


def run(events: int = EVENTS, rounds: int = ROUNDS) -> Iterable[Case]:
    with tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
        root = Path(folder)
        per_batch = max(events // BATCHES, 1)
        warm_up = Input(root / "warm_up", lay_out_sales(root / "warm_up", WARM_UP * per_batch, WARM_UP))
        sales = Input(root / "sales", lay_out_sales(root / "sales", BATCHES * per_batch, BATCHES))
        spark = start_session("benchmark")
        for setting, value in STATE_STORE.items():
            spark.conf.set(setting, value)
        try:
            _round(spark, warm_up, 0, {name: Runs() for name in CASES})
            runs = {name: Runs() for name in CASES}
            for number in range(rounds):
                _round(spark, sales, number, runs)
        finally:
            spark.stop()
    # Ratios are taken batch by batch, because batch n is the same file in every case.
    yield from compared({name: each.rates(per_batch) for name, each in runs.items()}, "events/s", REFERENCES)
    yield from _profile("tidegauge", runs["tidegauge"])
    yield from _profile("noop", runs["noop"])


def _round(spark: SparkSession, sales: Input, number: int, runs: dict[str, Runs]) -> None:
    """Run each case once. Every round starts with another case, because a case affects the one after it."""
    names = list(CASES)
    first = number % len(names)
    for name in names[first:] + names[:first]:
        with (
            tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as checkpoint,
            batch_times(spark) as times,
            call_spans(BatchLedger, "begin", "commit") as calls,
        ):
            CASES[name](spark, sales, Path(checkpoint))
        for place, jobs in enumerate(job_spans(spark, times.run_id)[WARM_UP:], start=WARM_UP):
            ledger = {call: spans[place] for call, spans in calls.items() if spans}
            runs[name].inside.append(timeline(jobs | ledger, times.batches[place][INSIDE]))
        runs[name].phases += times.batches[WARM_UP:]


def _tidegauge(spark: SparkSession, sales: Input, checkpoint: Path) -> None:
    with database() as conn:
        totals = Stream.read(sales.source()).group_by("shop").persistent_aggregate(SALES)
        Driver(Pipeline("bench_ingest", [totals]), spark, database_url(conn), RunOptions(checkpoint, once=True)).run()
        _check(conn, f"tidegauge_live.{SALES.name}", sales.totals)


def _noop(spark: SparkSession, sales: Input, checkpoint: Path) -> None:
    def discard(batch: DataFrame, batch_id: int) -> None:
        _totals(batch).write.format("noop").mode("overwrite").save()

    drain(sales.stream(spark).writeStream.foreachBatch(discard), checkpoint)


def _rocksdb(spark: SparkSession, sales: Input, checkpoint: Path) -> None:
    drain(_totals(sales.stream(spark)).writeStream.format("noop").outputMode("update"), checkpoint)


def _executemany(spark: SparkSession, sales: Input, checkpoint: Path) -> None:
    with database() as conn:
        conn.execute("CREATE TABLE by_hand (shop text PRIMARY KEY, n bigint, total double precision)")
        drain(sales.stream(spark).writeStream.foreachBatch(partial(_upsert_by_hand, conn)), checkpoint)
        _check(conn, "by_hand", sales.totals)


# tidegauge runs directly after its main reference, so that the machine is in the same state for both.
CASES: dict[str, Callable[[SparkSession, Input, Path], None]] = {
    "noop": _noop,
    "tidegauge": _tidegauge,
    "rocksdb": _rocksdb,
    "executemany": _executemany,
}


def _totals(sales: DataFrame) -> DataFrame:
    return sales.groupBy("shop").agg(F.count(F.lit(1)).alias("n"), F.sum("x").alias("total"))


def _upsert_by_hand(conn: psycopg.Connection, batch: DataFrame, batch_id: int) -> None:
    rows = _totals(batch).collect()
    with conn.transaction(), conn.cursor() as cursor:
        cursor.executemany(BY_HAND, rows)


def drain(writer: DataStreamWriter, checkpoint: Path) -> None:
    """Run a query until all input is processed, as the driver does with `once`, with Spark's default file manager."""
    conf = SparkSession.active().conf
    ours = conf.get(FILE_MANAGER)
    conf.unset(FILE_MANAGER)
    try:
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    finally:
        conf.set(FILE_MANAGER, ours)


def _check(conn: psycopg.Connection, table: str, expected: Totals) -> None:
    row = conn.execute(f"SELECT count(*), sum(n)::bigint, sum(total) FROM {table}").fetchone()
    assert row is not None
    assert Totals(*row) == expected, f"{table} has {Totals(*row)}, the files {expected}"


def _profile(name: str, runs: Runs) -> Iterator[Case]:
    """Yield the parts of a batch's time: Spark's phases, and the parts of the phase `addBatch`."""
    for part, milliseconds in (medians(runs.phases) | medians(runs.inside)).items():
        yield Case(f"{name}_{part}", milliseconds, "ms", rounds=len(runs.phases))
