"""Sink plan: the input of the tasks of states, as one query that is written once and run for every batch.

Groups give partial aggregates: one row per key, with key columns and partial aggregates named and typed as the state's.
An updater gets the tuples by key. The query is one SQL text, because building it by calls from Python takes several
times as long: each call is a message to another process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegauge.pipelines.batch.misfits import MISFITS, misfit
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.frames import Frames
from tidegauge.pipelines.declare.keys import key_columns
from tidegauge.pipelines.declare.stream import FedState, PartitionPersist, PersistentAggregate, Stream, check_sign
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.source import SIGN
from tidegauge.pipelines.spark.session import arrow_schema, most_tasks, spark_type, sql_of_type
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.spec.state_spec import StateSpec, stored_column

COUNT = "_count"
VIEW = "tidegauge_events"

# The most timers that fire in one batch, because their keys pass through the driver's memory.
MAX_WOKEN = 100_000
WOKEN = "woken"


@dataclass
class SinkPlan:
    """The input of the tasks of some states, as one query over views of the frames that the states read.

    partitions: how many tasks may write a state. few: whether one task writes all states.
    """

    states: Sequence[FedState]
    partitions: int
    few: bool
    _text: str = field(default="", init=False)
    _partials: dict[FedState, "PartialAggregates"] = field(default_factory=dict, init=False)

    def rows(self, frames: Frames, context: BatchContext) -> DataFrame:
        """Return the rows of all states, each as a struct in the column of its state; of one state as they are."""
        # Made once, because this asks Spark for the types of the events, which are the same in every batch.
        self._partials = self._partials or {
            fed: PartialAggregates.over(frames.of(fed.stream), fed, f"{MISFITS}_{place}")
            for place, fed in enumerate(self.states)
            if isinstance(fed, PersistentAggregate)
        }
        views = self._views(frames, context)
        names = {frame: f"{VIEW}_{place}" for place, frame in enumerate(dict.fromkeys(views))}
        spark = views[0].sparkSession
        with _named(names):
            self._text = self._text or self._written(spark, [names[view] for view in views])
            return spark.sql(self._text)

    def _views(self, frames: Frames, context: BatchContext) -> list[DataFrame]:
        """Return the frame that each state reads; states that read one stream share it."""
        wide = {stream: self._with_misfits(frames.of(stream), stream) for stream in self._streams}
        return [
            wide[fed.stream]
            if isinstance(fed, PersistentAggregate)
            else tuples_for(fed, frames.of(fed.stream), context)
            for fed in self.states
        ]

    @property
    def _streams(self) -> Iterable[Stream]:
        return dict.fromkeys(fed.stream for fed in self._partials)

    def _with_misfits(self, events: DataFrame, stream: Stream) -> DataFrame:
        readers = (query for fed, query in self._partials.items() if fed.stream is stream)
        columns = {query.misfits: query.is_misfit for query in readers if query.is_misfit is not None}
        if len(columns) == 1:  # one message to Java instead of seven
            return events.withColumn(*columns.popitem())
        return events.withColumns(columns) if columns else events

    def _written(self, spark: SparkSession, views: Sequence[str]) -> str:
        texts = [
            self._partials[fed].sql(view) if fed in self._partials else f"SELECT * FROM {view}"
            for fed, view in zip(self.states, views, strict=True)
        ]
        # Because the task of each partition holds a connection.
        if not self.few and most_tasks(spark) > self.partitions:
            texts = [_coalesced(text, self.partitions) for text in texts]
        # A single state gets no struct, because making structs takes a tenth of the time of a large batch.
        if len(texts) > 1:
            types = [sql_of_type(spark.sql(text).schema) for text in texts]
            texts = [" UNION ALL ".join(_as_struct(place, text, types) for place, text in enumerate(texts))]
        return _coalesced(texts[0], 1) if self.few else texts[0]


@contextmanager
def _named(names: Mapping[DataFrame, str]) -> Iterator[None]:
    """Let queries read frames by name within the block.

    The names are dropped then, because Spark copies the session with its names for each frame that it caches: each
    batch's copy would keep the plans of the batch before, whose copy keeps those of the one before that. They are
    dropped in the catalog itself, because `dropTempView` also drops cached rows, and tasks would run again.
    """
    for frame, name in names.items():
        frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for frame, name in names.items():
            frame.sparkSession._jsparkSession.sessionState().catalog().dropTempView(name)


def _coalesced(text: str, partitions: int) -> str:
    return f"SELECT /*+ COALESCE({partitions}) */ * FROM ({text})"


def _as_struct(place: int, text: str, types: Sequence[str]) -> str:
    columns = [f"struct(*) AS f{n}" if n == place else f"CAST(NULL AS {kind}) AS f{n}" for n, kind in enumerate(types)]
    return f"SELECT {place} AS fed, {', '.join(columns)} FROM ({text})"


@dataclass(frozen=True)
class PartialAggregates:
    """The query for one row per key of a state: key columns and partial aggregates, named and typed as the state's.

    If Python folds the rows, they come in key order within a partition, because its tasks lock rows before they fold.
    Misfits form groups of their own, which only give their number, in the column MISFITS.
    misfits: the column of the events that holds `is_misfit`. is_misfit: None if no event can be a misfit.
    """

    aggregate: PersistentAggregate
    misfits: str
    is_misfit: Column | None

    @classmethod
    def over(cls, events: DataFrame, aggregate: PersistentAggregate, misfits: str = MISFITS) -> "PartialAggregates":
        """Return the query for events of these types. Raises PipelineError if retracted events have lost their sign."""
        if aggregate.stream.retracts:
            check_sign(events)
        return cls(aggregate, misfits, misfit(aggregate, events))

    def sql(self, view: str) -> str:
        """Return the query over a view of the events."""
        spec = self.aggregate.spec
        keys = key_columns(spec, self.aggregate.keys)
        partials = [
            f"{expression} AS {quoted(stored_column(measure, suffix))}"
            for measure, aggregator in spec.measures.items()
            for suffix, expression in self._partials(aggregator).items()
        ]
        chosen = [*map(quoted, spec.key), *map(quoted, spec.partial_columns)]
        if self.is_misfit is not None:
            keys.append(f"{self.misfits} AS {MISFITS}")
            partials.append(f"count(1) AS {COUNT}")
            chosen.append(f"CASE WHEN {MISFITS} THEN {COUNT} END AS {MISFITS}")
        # By number, because an expression may read a column that has the name of a key.
        grouping = f" GROUP BY {', '.join(map(str, range(1, len(keys) + 1)))}" if keys else ""
        order = "" if spec.folds_in_sql or not spec.key else f" SORT BY {', '.join(map(quoted, spec.key))}"
        return f"SELECT {', '.join(chosen)} FROM (SELECT {', '.join(keys + partials)} FROM {view}{grouping}){order}"

    def _partials(self, aggregator: Any) -> Mapping[str, str]:
        retracts = self.aggregate.stream.retracts
        partials: Mapping[str, str] = aggregator.signed_partial(quoted(SIGN)) if retracts else aggregator.partial()
        return partials


def partial_aggregates(events: DataFrame, aggregate: PersistentAggregate) -> DataFrame:
    """Return the partial aggregates of some events. See PartialAggregates."""
    query = PartialAggregates.over(events, aggregate)
    rows = events if query.is_misfit is None else events.withColumn(query.misfits, query.is_misfit)
    with _named({rows: VIEW}):
        return events.sparkSession.sql(query.sql(VIEW))


def rows_for(fed: FedState, events: DataFrame, context: BatchContext) -> DataFrame:
    """Return the input of the tasks of a state."""
    if isinstance(fed, PersistentAggregate):
        return partial_aggregates(events, fed)
    return tuples_for(fed, events, context)


def tuples_for(fed: PartitionPersist, events: DataFrame, context: BatchContext) -> DataFrame:
    """Return the input of the tasks of an updater."""
    return tuples_by_key(events, fed, context) if fed.spec else events


def tuples_by_key(events: DataFrame, fed: PartitionPersist, context: BatchContext) -> DataFrame:
    """Return the tuples with the key typed as the state's, those of a key together and in the declared order.

    Raises PipelineError for a key column or an order that the stream lacks.
    """
    spec = fed.spec
    assert spec is not None
    known = [*events.columns, *([WOKEN] if fed.due is not None else [])]
    for name in (*spec.key, *fed.order_by):
        if name not in known:
            raise PipelineError(f"state {spec.name!r}: the stream has no column {name!r}; there are {', '.join(known)}")
    rest = [quoted(name) for name in events.columns if name not in spec.key]
    tuples = events.selectExpr(*key_columns(spec), *rest)
    if fed.due is not None:
        tuples = _with_woken(tuples, spec, fed.due, context)
    keyed = tuples.repartition(*spec.key) if spec.key else tuples.coalesce(1)
    return keyed.sortWithinPartitions(*spec.key, *fed.order_by) if spec.key or fed.order_by else keyed


def _with_woken(tuples: DataFrame, spec: StateSpec, due: str, context: BatchContext) -> DataFrame:
    tuples = tuples.withColumn(WOKEN, F.lit(False))
    if context.watermark is None:
        return tuples
    keys = _due_keys(spec, due, context)
    if not keys:
        return tuples
    schema = arrow_schema({name: spark_type(kind) for name, kind in spec.key.items()} | {WOKEN: "boolean"})
    arrays = [pa.array(part, field.type) for part, field in zip(zip(*keys, strict=True), schema, strict=True)]
    woken = tuples.sparkSession.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
    return tuples.unionByName(woken, allowMissingColumns=True)


def _due_keys(spec: StateSpec, due: str, context: BatchContext) -> list[tuple[Any, ...]]:
    """Return the keys whose timers fire. The rows read are committed ones, because no task has written yet."""
    assert context.watermark is not None
    with connect(context.dsn, f"{context.batch.pipeline} {spec.name} timers") as conn:
        keys = context.session(conn, spec).due_keys(due, context.watermark, MAX_WOKEN)
        return [(*map(_plain, key), True) for key in keys]


def _plain(part: Any) -> Any:
    return str(part) if type(part).__name__ == "UUID" else part
