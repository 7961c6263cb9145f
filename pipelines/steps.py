"""One verb on one micro-batch: what a persistent_aggregate does to a DataFrame, and what its tasks do to a state."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.refused_groups import RefusedGroups
from pipelines.stream import PersistentAggregate, Step
from state_backends.backing.postgres import PostgresBackingMap
from state_backends.journal.changelog import Changelog
from state_backends.journal.dead_letters import put_aside
from state_backends.journal.ledger import Batch, share
from state_backends.spec import StateSpec, stored_column

# Where Spark's name for a key's type is another than PostgreSQL's.
SPARK_TYPES = {
    "text": "string",
    "timestamptz": "timestamp",
    "uuid": "string",
    "integer": "int",
    "double precision": "double",
}

# A task that waits longer has met a stuck writer; failing it lets the batch be tried again. They travel with the
# connection's first message, so they cost no round trip.
SESSION = {
    "statement_timeout": "10min",
    "lock_timeout": "60s",
    "idle_in_transaction_session_timeout": "10min",
    "work_mem": "64MB",  # a task's rows are sorted by key before they are merged
    "timezone": "UTC",
}

WRITTEN = "keys bigint, refused bigint"
WRITTEN_ARROW = pa.schema([("keys", pa.int64()), ("refused", pa.int64())])


@dataclass(frozen=True)
class Written:
    """What the tasks of one state wrote: the keys, and the groups they put aside as dead letters."""

    keys: int
    refused: int


def run_steps(events: DataFrame, steps: Iterable[Step]) -> DataFrame:
    for step in steps:
        events = step(events)
    return events


def partial_aggregates(events: DataFrame, aggregate: PersistentAggregate) -> DataFrame:
    """Return one row per key: key columns and partial aggregates, named and typed as the state's columns.

    In key order within each partition, where tasks lock rows before they fold.
    """
    spec = aggregate.spec
    keys = [F.expr(aggregate.keys[name]).alias(name) for name in spec.key]
    partials = [
        F.expr(expression).alias(stored_column(measure, suffix))
        for measure, aggregator in spec.measures.items()
        for suffix, expression in aggregator.partial().items()
    ]
    typed = [F.col(name).cast(SPARK_TYPES.get(kind, kind)).alias(name) for name, kind in spec.key.items()]
    grouped = events.groupBy(*keys).agg(*partials).select(*typed, *spec.partial_columns)
    return grouped if spec.folds_in_sql or not spec.key else grouped.sortWithinPartitions(*spec.key)


def persist(partials: DataFrame, spec: StateSpec, batch: Batch, dsn: str) -> Written:
    """Write a batch's partial aggregates to the state, a transaction per partition, and return what was written.

    Raises what the tasks raised, wrapped by Spark.
    """
    rows = partials.mapInArrow(persist_partition(spec, batch, dsn), WRITTEN).collect()
    return Written(sum(row.keys for row in rows), sum(row.refused for row in rows))


def persist_partition(
    spec: StateSpec, batch: Batch, dsn: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that an executor runs over the Arrow batches of one partition."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (rows for rows in batches if rows.num_rows)
        first = next(filled, None)
        if first is not None:
            yield _write_partition(spec, batch, dsn, chain([first], filled))

    return write


def _write_partition(spec: StateSpec, batch: Batch, dsn: str, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    from pyspark import TaskContext

    task = TaskContext.get()
    refused = RefusedGroups(spec)
    with connect(dsn, f"{batch.pipeline} {spec.name} {batch.txid}") as conn, conn.transaction():
        share(conn, batch)
        keys = PostgresBackingMap(conn, spec).merge(refused.sift(batches), batch.txid, batch.batch_time)
        if spec.changelog:
            Changelog(conn, spec).append(batch.txid)
        # Nearly always there are none, and three round trips less; a task that runs again has the same ones again.
        part = task.partitionId() if task else 0
        letters = put_aside(conn, batch, refused.letters, state=spec.name, part=part) if refused.letters else 0
    return pa.RecordBatch.from_pylist([{"keys": keys, "refused": letters}], schema=WRITTEN_ARROW)


def connect(dsn: str, name: str) -> psycopg.Connection:
    """Open a connection in autocommit mode that gives up on stuck statements, locks and peers."""
    options = " ".join(f"-c {setting}={value}" for setting, value in SESSION.items())
    return psycopg.connect(
        dsn,
        autocommit=True,
        application_name=f"tidemark {name}"[:63],
        options=options,
        connect_timeout=10,
        keepalives_idle=30,
    )
