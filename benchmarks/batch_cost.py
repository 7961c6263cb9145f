"""batch-cost: a whole trigger as a multiple of Spark's floor, with one state and with four, at three sizes.

All cases read the same JSON lines of flights in one session, one file per batch. `noop` is the floor: one group-by in
foreachBatch, whose result is discarded. `tidegauge_1` feeds one state and `tidegauge_4` four, as users run them. The
value of a case is the median time of a trigger, with Spark's bookkeeping. Ratios are taken batch by batch, because
batch n is the same file in every case. `least` is the shortest trigger.
"""

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.batch_times import WHOLE, batch_times
from benchmarks.cases import Case, median_case
from benchmarks.ingest import drain
from benchmarks.input_files import lay_out_flights
from benchmarks.servers import database, database_url
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.jobs.flights import FLIGHT, flights
from tidegauge.pipelines.spark.session import start_session

UNEQUAL = {
    "noop": (
        "It does one group-by and discards the result, so it is a floor and not a peer: it only checks that a line is "
        "JSON, and writes no state, no ledger and no dead letters. Its checkpoint is written with Spark's default "
        "setting, which takes longer than the setting of Tidegauge's sessions."
    )
}
SEEDS = "the flights of file n: n, from 0; the order of the cases in round n: n and the case's name"

SIZES = (20, 10_000, 500_000)
WARM_UP, BATCHES = 4, 8
WARM_UP_LARGE, BATCHES_LARGE, LARGE = 2, 3, 100_000  # events; these take seconds each
ROUNDS = 5

Times = dict[str, list[float]]


def run(events: int = 0, rounds: int = ROUNDS) -> Iterator[Case]:
    """Yield a case per kind and size. events: the size of a batch, to measure only that size."""
    spark = start_session("benchmark")
    try:
        for size in (events,) if events else SIZES:
            with tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
                warm_up, batches = (WARM_UP, BATCHES) if size < LARGE else (WARM_UP_LARGE, BATCHES_LARGE)
                lay_out_flights(Path(folder), size, warm_up + batches)
                yield from _cases(size, _measure(spark, Path(folder), warm_up, rounds))
    finally:
        spark.stop()


def _measure(spark: SparkSession, folder: Path, warm_up: int, rounds: int) -> Times:
    times: Times = {name: [] for name in CASES}
    for number in range(rounds + 1):
        for name in sorted(CASES, key=lambda name: random.Random(f"{number} {name}").random()):
            with (
                tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as checkpoint,
                batch_times(spark) as measured,
            ):
                CASES[name](spark, folder, Path(checkpoint))
            if number:  # the first round warms up
                times[name] += [batch[WHOLE] for batch in measured.batches[warm_up:]]
    return times


def _cases(size: int, times: Times) -> Iterator[Case]:
    for name, taken in times.items():
        floor = {} if name == "noop" else {"noop": times["noop"]}
        yield median_case(f"{name}_{size}", taken, "ms", floor)
        least = {reference: min(taken) / min(others) for reference, others in floor.items()}
        yield Case(f"{name}_{size}_least", min(taken), "ms", ratio=least)


def _noop(spark: SparkSession, folder: Path, checkpoint: Path) -> None:
    def discard(batch: DataFrame, batch_id: int) -> None:
        totals = batch.groupBy("origin", "carrier").agg(F.count(F.lit(1)), F.sum("dep_delay"), F.max("dep_delay"))
        totals.write.format("noop").mode("overwrite").save()

    lines = spark.readStream.schema(FLIGHT).option("maxFilesPerTrigger", 1).json(str(folder))
    drain(lines.writeStream.foreachBatch(discard), checkpoint)


def _tidegauge(states: int, spark: SparkSession, folder: Path, checkpoint: Path) -> None:
    whole = flights(folder)
    with database() as conn:
        pipeline = Pipeline("bench_batches", whole.feeds[:states])
        Driver(pipeline, spark, database_url(conn), RunOptions(checkpoint, once=True)).run()


CASES: Mapping[str, Callable[[SparkSession, Path, Path], None]] = {
    "noop": _noop,
    "tidegauge_1": partial(_tidegauge, 1),
    "tidegauge_4": partial(_tidegauge, 4),
}
