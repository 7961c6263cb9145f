"""Stream: the verbs that declare what to compute. Nothing runs until a Driver runs the pipeline.

The verbs are those of Trident's Stream and GroupedStream (apache/storm, org.apache.storm.trident). A condition or
expression is Spark SQL; a function is Python.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Literal, Union

from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.functions import Function, MapGet, QueryFunction, StateFactory, StateUpdater
from pipelines.sources.source import Source
from state_backends.aggregators.column import quoted
from state_backends.spec import StateSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a verb does to one micro-batch: called with its context and the frame of each input, it returns a frame.
Step = Callable[..., "DataFrame"]


@dataclass(frozen=True)
class Watermark:
    """The latest time seen in `column`, less `delay` (a Spark interval, as `1 hour`)."""

    column: str
    delay: str
    drop_late: bool


@dataclass(frozen=True, eq=False)
class Stream:
    """Tuples and the steps that are applied to them. Streams do not change: every verb returns a new one.

    inputs: a source, streams, or a state whose new values it reads. step: what it does to the inputs' frames.
    costly: worth caching if more than one stream reads it. scope: what the step looks at, if that is known: each tuple
    by itself, or also a state; None: the frames that it makes tell.
    Two streams are equal only if they are the same object.
    """

    inputs: tuple[Union[Source, "Stream", "FedState"], ...]
    step: Step
    watermark: Watermark | None = None
    costly: bool = False
    scope: Literal["tuple", "state"] | None = None

    @classmethod
    def read(cls, source: Source) -> "Stream":
        """Return the stream of a source's events, with the columns of its schema."""
        return cls((source,), _unchanged)

    def where(self, condition: str) -> "Stream":
        """Keep the tuples for which a condition is true, as `dep_time is not null`. Trident's filter."""
        return self.transform(lambda events: events.where(condition))

    def project(self, *columns: str) -> "Stream":
        """Keep these columns only. Trident's project."""
        return self.transform(lambda events: events.select(*map(quoted, columns)))

    def each(self, function: Function | None = None, on: Sequence[str] = (), /, **columns: str) -> "Stream":
        """Add or replace columns. Trident's each.

        Without a function `columns` is name to expression; one of them may return many rows, as `explode(..)`.
        function: called once per tuple with the values of the columns `on`. It returns zero or more tuples of the new
        values; each makes one row beside the other columns. Then `columns` is name to Spark type, in the order emitted.
        When the pipeline starts, raises PipelineError for a type that is not Spark's or a column in `on` that is
        missing; a batch fails with it if a tuple has another length or type than declared.
        """
        if function is None:
            return self.transform(lambda events: _with_columns(events, columns))
        return Stream((self,), _apply(function, tuple(on), columns), costly=True, scope="tuple")

    def transform(self, step: Callable[["DataFrame"], "DataFrame"]) -> "Stream":
        """Apply a function from DataFrame to DataFrame to each micro-batch. It must be deterministic."""
        return Stream((self,), lambda context, events: step(events))

    def merge(self, *others: "Stream") -> "Stream":
        """Combine the tuples of streams by column name; a missing column becomes null. Trident's merge."""
        return Stream((self, *others), _merge)

    def partition_by(self, *columns: str) -> "Stream":
        """Put tuples with equal values into one partition, for a `partition_persist` into your own store.

        Trident's partitionBy.
        """
        return self.transform(lambda events: events.repartition(*map(quoted, columns)))

    def with_watermark(self, column: str, delay: str, *, drop_late: bool = False) -> "Stream":
        """Declare how late tuples may arrive: `with_watermark("time", "1 hour")`.

        column: a timestamp. delay: a Spark interval. A tuple is late if its time is before the watermark of the
        earlier batches. Late tuples are counted in the batch's figures, and dropped if `drop_late` is set; a tuple
        without a time is never late. The watermark fires timers (see `partition_persist`). A pipeline with several
        watermarks uses the earliest. A time more than a day after the batch's own time does not advance it.
        When the pipeline starts, raises PipelineError if the column is not a timestamp or the delay not an interval.
        """
        return Stream((self,), _drop_late(column, drop_late), Watermark(column, delay, drop_late))

    def group_by(self, *columns: str, **expressions: str) -> "GroupedStream":
        """Group by columns and by named expressions: `group_by("origin", hour=tumbling("time", "1 hour"))`.

        Trident's groupBy.
        """
        return GroupedStream(self, {column: quoted(column) for column in columns} | expressions)

    def aggregate(self, **columns: str) -> "Stream":
        """Aggregate each batch on its own into one tuple: `aggregate(total="sum(count)")`. Trident's aggregate."""
        return GroupedStream(self, {}).aggregate(**columns)

    def persistent_aggregate(self, spec: StateSpec) -> "PersistentAggregate":
        """Fold all events into the single row of a state without key columns.

        Raises PipelineError if the state has key columns, or no measures.
        """
        return GroupedStream(self, {}).persistent_aggregate(spec)

    def state_query(
        self,
        state: StateSpec | StateFactory,
        on: Sequence[str],
        function: QueryFunction | None = None,
        /,
        **columns: str,
    ) -> "Stream":
        """Look up each tuple in a state and add the result: `state_query(PROFILES, ["user"], region="string")`.

        state: a Tidemark state, as committed before this batch, or a factory for a store of your own.
        on: the columns to look up by; for a Tidemark state in the order of its key. function: a QueryFunction, or None
        for MapGet of the measures that `columns` names. columns: what it emits, name to Spark type.
        The function is called once per Arrow batch, with each distinct input once. Trident's stateQuery.
        When the pipeline starts, raises PipelineError if `on` does not fit the state's key, or if the pipeline itself
        feeds the state and it is not opaque, since a replay would then find its own rows.
        """
        step = _query(state, tuple(on), function or MapGet(tuple(columns)), columns)
        return Stream((self,), step, costly=True, scope="state")

    def partition_persist(
        self,
        state: StateSpec | StateFactory,
        updater: StateUpdater,
        *,
        name: str | None = None,
        order_by: Sequence[str] = (),
        emits: Mapping[str, str] | None = None,
        due: str | None = None,
    ) -> "PartitionPersist":
        """Update a state with a Python StateUpdater. Trident's partitionPersist.

        state: a Tidemark state, or a factory for a store of your own. The stream must have the key columns of a
        Tidemark state; one task gets all tuples of a key and writes in the transaction that checks the fence. A store
        of your own gets the partitions as they are, between `begin_commit(txid)` and `commit(txid)`.
        name: what errors and figures call a store of your own. order_by: the order of the tuples of a key.
        emits: the columns of the new values stream, name to Spark type.
        due: a timer per key: the name of a field of a JSON value, or of a stored timestamptz column, that holds a
        time. When the watermark reaches it, the updater gets one more tuple of that key, with `woken` true and null in
        every column outside the key; `woken` is false in all other tuples. At most 100,000 keys per batch are woken,
        the earliest first.
        Raises PipelineError if `due` is not a time that the state stores.
        """
        return PartitionPersist(self, state, updater, name, tuple(order_by), dict(emits or {}), due)


@dataclass(frozen=True, eq=False)
class GroupedStream:
    """A stream and its groups. keys: name to Spark SQL expression. Trident's GroupedStream."""

    stream: Stream
    keys: dict[str, str]

    def aggregate(self, **columns: str) -> Stream:
        """Aggregate each group within each batch: `group_by("word").aggregate(n="count(1)")`."""
        return self.stream.transform(lambda events: _aggregate(events, self.keys, columns))

    def persistent_aggregate(self, spec: StateSpec) -> "PersistentAggregate":
        """Fold each group into the row of its key. The groups must have the names of the state's key columns.

        Raises PipelineError if they have not, or if the state has no measures.
        """
        if set(self.keys) != set(spec.key) or not spec.measures:
            raise PipelineError(
                f"state {spec.name!r}: grouped by {', '.join(self.keys) or 'nothing'}, but its key is "
                f"{', '.join(spec.key) or 'empty'} and its measures are {', '.join(spec.measures) or 'none'}; "
                "name the groups after the key columns, and give the state a measure"
            )
        return PersistentAggregate(self.stream, self.keys, spec)


@dataclass(frozen=True, eq=False)
class PersistentAggregate:
    """A state and the groups that are folded into it: what `persistent_aggregate` returns."""

    stream: Stream
    keys: dict[str, str]
    spec: StateSpec

    @property
    def name(self) -> str:
        return self.spec.name

    def new_values_stream(self) -> Stream:
        """Return the stream of the new values of the keys that each batch updated. Trident's newValuesStream.

        Columns: the key; each measure as readers will see it; and for an opaque state `prev_<measure>`, the measure as
        readers saw it before the batch, null if the key is new.
        """
        return Stream((self,), _unchanged)


@dataclass(frozen=True, eq=False)
class PartitionPersist:
    """A state and the updater of its rows: what `partition_persist` returns."""

    stream: Stream
    state: StateSpec | StateFactory
    updater: StateUpdater
    store: str | None
    order_by: tuple[str, ...]
    emits: dict[str, str] = field(default_factory=dict)
    due: str | None = None

    def __post_init__(self) -> None:
        if self.due is not None and not _is_time(self.spec, self.due):
            raise PipelineError(
                f"state {self.name!r}: due {self.due!r} is not a time that it stores; name a field of its JSON value, "
                "or a stored timestamptz column"
            )

    @property
    def spec(self) -> StateSpec | None:
        return self.state if isinstance(self.state, StateSpec) else None

    @property
    def name(self) -> str:
        return self.spec.name if self.spec else self.store or type(self.state).__name__

    def new_values_stream(self) -> Stream:
        """Return the stream of the tuples that the updater emitted. Trident's newValuesStream.

        Raises PipelineError if `emits` is empty.
        """
        if not self.emits:
            raise PipelineError(f"state {self.name!r}: emits nothing; declare emits={{column: type}}")
        return Stream((self,), _unchanged)


# Node: everything that has a frame in a batch.
FedState = PersistentAggregate | PartitionPersist
Node = Source | Stream | FedState


def tumbling(column: str, width: str, start: str = "0 seconds") -> str:
    """Return the expression for the start of an event's window: `tumbling("time_hour", "1 hour")`.

    width, start: as for `sliding`.
    """
    return f"window({quoted(column)}, '{width}', '{width}', '{start}').start"


def sliding(column: str, width: str, slide: str, start: str = "0 seconds") -> str:
    """Return the expression for the starts of all windows of an event, for `each` or `group_by`: one row per window.

    width, slide, start: Spark intervals of weeks or less, as `25 minutes`; slide is at most width, and start less than
    slide. Windows begin at 1970-01-01T00:00Z plus start and every slide before and after it, whatever the time zone: a
    day has 24 hours. An event without a time is in no window, so its row is left out.
    They are the windows of Spark's own `window(column, width, slide, start)`.
    """
    return f"window({quoted(column)}, '{width}', '{slide}', '{start}').start"


def _unchanged(context: BatchContext, events: "DataFrame") -> "DataFrame":
    return events


def _merge(context: BatchContext, first: "DataFrame", *others: "DataFrame") -> "DataFrame":
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first


def _with_columns(events: "DataFrame", columns: Mapping[str, str]) -> "DataFrame":
    kept = [quoted(name) for name in events.columns if name not in columns]
    return events.selectExpr(*kept, *_named(columns))


def _aggregate(events: "DataFrame", keys: Mapping[str, str], columns: Mapping[str, str]) -> "DataFrame":
    from pyspark.sql import functions as F

    return events.groupBy(*map(F.expr, _named(keys))).agg(*map(F.expr, _named(columns)))


def _named(expressions: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {quoted(name)}" for name, expression in expressions.items()]


def _drop_late(column: str, drop_late: bool) -> Step:
    def drop(context: BatchContext, events: "DataFrame") -> "DataFrame":
        if not drop_late or context.late_before is None:
            return events
        from pyspark.sql import functions as F

        # The comparison is null for a tuple without a time.
        return events.where(F.coalesce(F.col(column) >= F.lit(context.late_before), F.lit(True)))

    return drop


def _apply(function: Function, on: tuple[str, ...], columns: dict[str, str]) -> Step:
    def apply(context: BatchContext, events: "DataFrame") -> "DataFrame":
        from pipelines.tuples import with_emitted

        return with_emitted(events, on, lambda: nullcontext(lambda inputs: starmap(function, inputs)), columns)

    return apply


def _query(
    state: StateSpec | StateFactory, on: tuple[str, ...], function: QueryFunction, columns: dict[str, str]
) -> Step:
    def query(context: BatchContext, events: "DataFrame") -> "DataFrame":
        from pipelines.state_query import with_answers

        return with_answers(events, on, state, function, columns, context)

    return query


def _is_time(spec: StateSpec | None, name: str) -> bool:
    return spec is not None and (not spec.measures or spec.value_columns.get(name) == "timestamptz")
