"""trident: events per second through small and large batches, compared with Storm Trident and its Redis opaque state.

All compute a count and a sum per shop, with previous values, of the same sales: batches of 10,000 events with some
2,800 shops, and of 500,000 with some 68,000. `tidegauge` keeps the state in PostgreSQL, `tidegauge_redis` in Redis.
Trident runs in local mode, in one Java process, with four batches in flight, at least a millisecond between batches,
and all keys in its cache. A round is one run over all files; its rate is that of the batches after a warm-up. The
totals are checked.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.csv as pc
import pyarrow.parquet as pq
import redis
from pyspark.sql import SparkSession

from benchmarks.batch_times import WHOLE, batch_times
from benchmarks.cases import Case, compared
from benchmarks.input_files import SCHEMA, Totals, lay_out_sales
from benchmarks.peers.environments import TRIDENT_PROJECT, pinned, trident_classpath
from benchmarks.rows import SALES
from benchmarks.servers import database, database_url, redis_client
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.embedded.java import java_home
from tidegauge.pipelines.sources.files.formats import ParquetFiles
from tidegauge.pipelines.spark.session import start_session
from tidegauge.state_backends import PostgresBackingMap, RedisBackingMap

UNEQUAL = {
    "trident": (
        "Its spout splits lines of text in one task, while Tidegauge reads Parquet. It works on four batches at once "
        "and keeps the values of all keys in memory. For a batch it writes the values and, to an in-process ZooKeeper, "
        "the batch's number. It has no ledger and no batch boundary for readers, and a value that a failed attempt "
        "wrote stays wrong if the replay does not touch it. It uses the Redis of `tidegauge_redis`, with the same "
        "settings."
    )
}
SEEDS = "the sales of file n: n, from 0"

VERSIONS = {"Storm": pinned(r"<storm\.version>(.+)</storm\.version>", TRIDENT_PROJECT)}

ROUNDS = 5
HASH = "tidegauge:bench:trident"
SETTINGS = {"pending": 4, "cache": 1_000_000, "tasks": 2}
RUN_SECONDS = 600
SECONDS = re.compile(r"^seconds ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Size:
    """How many events a batch has, how many files there are, and how many times Trident reads them.

    Tidegauge reads the files once and warms up with the first ones. Trident warms up in the first half of its passes,
    because its Java process starts with each round.
    """

    events: int
    files: int
    warm_up: int
    passes: int


SIZES = (Size(10_000, files=20, warm_up=5, passes=6), Size(500_000, files=5, warm_up=2, passes=3))


@dataclass(frozen=True)
class Sales:
    """The same sales as Parquet and as text, one file per batch, and their totals."""

    size: Size
    folder: Path
    totals: Totals

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    @property
    def csv(self) -> Path:
        return self.folder / "csv"


def run(rounds: int = ROUNDS) -> Iterator[Case]:
    trident_classpath()  # raises MissingPeerError before anything is started
    with redis_client() as client:  # before Spark, because its workers inherit the address of Redis
        spark = start_session("benchmark")
        try:
            for size in SIZES:
                with tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
                    rates = _rates(spark, client, _lay_out(size, Path(folder)), rounds)
                for case in compared(rates, "events/s", ["trident"]):
                    yield replace(case, name=f"{case.name}_{size.events}")
        finally:
            spark.stop()


def _rates(spark: SparkSession, client: redis.Redis, sales: Sales, rounds: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in CASES}
    for number in range(rounds + 1):
        for name, run_case in CASES.items():
            if number or name != "trident":  # without Trident, because the first round only warms Spark up
                rates[name].append(run_case(spark, client, sales))
    return {name: each[-rounds:] for name, each in rates.items()}


def _lay_out(size: Size, folder: Path) -> Sales:
    sales = Sales(size, folder, lay_out_sales(folder / "parquet", size.files * size.events, size.files))
    sales.csv.mkdir()
    for file in sales.parquet.iterdir():
        text = pc.WriteOptions(include_header=False, quoting_style="none")
        pc.write_csv(pq.read_table(file), sales.csv / f"{file.stem}.csv", text)
    return sales


def _trident(spark: SparkSession, client: redis.Redis, sales: Sales) -> float:
    client.delete(HASH)
    size, batches = sales.size, sales.size.files * sales.size.passes
    warm_up = batches // 2
    # The last batches are not measured, so that as many are in flight at the end of the measurement as at its start.
    measured = batches - warm_up - SETTINGS["pending"]
    seconds = _trident_seconds(
        folder=sales.csv, passes=size.passes, warmUp=warm_up, measured=measured, hash=HASH, **SETTINGS
    )  # fmt: skip
    _check(_trident_totals(client), sales.totals, size.passes)
    return measured * size.events / seconds


def _trident_seconds(**settings: object) -> float:
    """Run the topology; return the seconds that it reports for the batches after the warm-up."""
    server = urlsplit(os.environ["REDIS_URL"])
    properties = [f"-D{name}={value}" for name, value in {**settings, "port": server.port}.items()]
    environ = os.environ | {"REDIS_PASSWORD": server.password or ""}
    command = [f"{java_home()}/bin/java", "-cp", trident_classpath(), *properties, "tidegauge.OpaqueTotals"]
    with tempfile.TemporaryDirectory() as folder:  # because Storm leaves files in its working directory
        ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=RUN_SECONDS)
    found = SECONDS.findall(ran.stdout)
    if len(found) != 1:
        raise RuntimeError(f"Trident ended with {ran.returncode} and no result: {(ran.stderr or ran.stdout)[-2000:]}")
    return float(found[0])


def _trident_totals(client: redis.Redis) -> Totals:
    """Return the totals of the current values: a row is [txid, current, previous] as JSON, a value [count, sum]."""
    values = [json.loads(row)[1] for row in client.hvals(HASH)]
    return Totals(len(values), sum(n for n, _ in values), sum(total for _, total in values))


def _tidegauge(backend: str, spark: SparkSession, client: redis.Redis, sales: Sales) -> float:
    state = replace(SALES, backend=backend)
    source = ParquetFiles(sales.parquet, schema=SCHEMA, files_per_batch=1)
    with (
        database() as conn,
        redis_client(),  # deletes the state afterwards
        tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as checkpoint,
    ):
        pipeline = Pipeline("bench_trident", [Stream.read(source).group_by("shop").persistent_aggregate(state)])
        with batch_times(spark) as times:
            Driver(pipeline, spark, database_url(conn), RunOptions(Path(checkpoint), once=True)).run()
        rows = PostgresBackingMap(conn, state) if backend == "postgres" else RedisBackingMap(client, state)
        values = [row.value for _, row in rows.scan()]
    _check(Totals(len(values), sum(each["n"] for each in values), sum(each["total"] for each in values)), sales.totals)
    measured = [batch[WHOLE] for batch in times.batches[sales.size.warm_up :]]
    return 1000 * len(measured) * sales.size.events / sum(measured)


def _check(found: Totals, expected: Totals, passes: int = 1) -> None:
    if found != Totals(expected.shops, passes * expected.n, passes * expected.total):
        raise RuntimeError(f"the state has {found}, the files {expected}, read {passes} times")


CASES: dict[str, Callable[[SparkSession, redis.Redis, Sales], float]] = {
    "trident": _trident,
    "tidegauge": partial(_tidegauge, "postgres"),
    "tidegauge_redis": partial(_tidegauge, "redis"),
}
