"""Stream: the verbs that say what to compute. Nothing runs until a runner takes the pipeline.

The verbs are Trident's. A condition or expression is Spark SQL; a function is Python.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Union

from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.functions import Function, MapGet, QueryFunction, StateFactory, StateUpdater
from pipelines.sources.source import Source
from state_backends.aggregators.column import quoted
from state_backends.spec import StateSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# One verb on one micro-batch: what it makes of the frames of its inputs.
Step = Callable[..., "DataFrame"]


@dataclass(frozen=True)
class Watermark:
    """How far event time has come: the latest time seen in `column`, less `delay`, as Spark reckons it."""

    column: str
    delay: str
    drop_late: bool


@dataclass(frozen=True, eq=False)
class Stream:
    """Tuples and the steps they go through; every verb returns a new Stream.

    inputs: what it is made from: a source, streams, or a fed state's new values. step: called with the batch's context
    and the inputs' frames. costly: worth keeping where two streams go on from here.
    """

    inputs: tuple[Union[Source, "Stream", "FedState"], ...]
    step: Step
    watermark: Watermark | None = None
    costly: bool = False

    @classmethod
    def read(cls, source: Source) -> "Stream":
        """Start a stream at a source, with the columns of its schema."""
        return cls((source,), _as_it_is)

    def where(self, condition: str) -> "Stream":
        """Keep the tuples that meet a condition, as `dep_time is not null`."""
        return self.transform(lambda events: events.where(condition))

    def project(self, *columns: str) -> "Stream":
        """Keep these columns only."""
        return self.transform(lambda events: events.select(*map(quoted, columns)))

    def each(self, function: Function | None = None, on: Sequence[str] = (), /, **columns: str) -> "Stream":
        """Add or replace columns.

        Without a function each is a name and an expression; one of them may make many rows of one, as `explode(..)`.
        function: called with the values of the columns `on`, once per tuple; each tuple it returns makes one row, so
        none drops the row. Then `columns` are what it emits, name to Spark type.
        """
        if function is None:
            return self.transform(lambda events: _with_columns(events, columns))
        return self._step(_apply, function, tuple(on), columns, costly=True)

    def transform(self, step: Callable[["DataFrame"], "DataFrame"]) -> "Stream":
        """Apply any DataFrame step. It must be deterministic, and sees one micro-batch at a time."""
        return Stream((self,), lambda context, events: step(events))

    def merge(self, *others: "Stream") -> "Stream":
        """Put streams together by column name; a column that one of them lacks is null there. Trident's merge."""
        return Stream((self, *others), _merge)

    def partition_by(self, *columns: str) -> "Stream":
        """Bring tuples with the same values together, for a `partition_persist` into a store of your own."""
        return self.transform(lambda events: events.repartition(*map(quoted, columns)))

    def with_watermark(self, column: str, delay: str, *, drop_late: bool = False) -> "Stream":
        """Say how late tuples may come: `with_watermark("time", "1 hour")`.

        A tuple is late if its time is before the watermark that earlier batches have brought. Late tuples are counted
        in the batch's figures, and left out with `drop_late`. Timers run by the watermark (see `partition_persist`).
        A pipeline that has several goes by the one furthest behind; a time more than a day ahead of the batch's own
        moves none of them.
        """
        return Stream((self,), _drop_late(column, drop_late), Watermark(column, delay, drop_late))

    def group_by(self, *columns: str, **expressions: str) -> "GroupedStream":
        """Group by columns, and by expressions under a name: `group_by("origin", hour=tumbling("time", "1 hour"))`."""
        return GroupedStream(self, {column: quoted(column) for column in columns} | expressions)

    def aggregate(self, **columns: str) -> "Stream":
        """Aggregate each batch by itself into one tuple: `aggregate(total="sum(count)")`."""
        return GroupedStream(self, {}).aggregate(**columns)

    def persistent_aggregate(self, spec: StateSpec) -> "PersistentAggregate":
        """Fold all events into the one row of a state without key columns."""
        return GroupedStream(self, {}).persistent_aggregate(spec)

    def state_query(
        self,
        state: StateSpec | StateFactory,
        on: Sequence[str],
        function: QueryFunction | None = None,
        /,
        **columns: str,
    ) -> "Stream":
        """Look tuples up in a state and add what is found: `state_query(PROFILES, ["user"], region="string")`.

        state: one of Tidemark's, as it was committed before this batch, or a factory for a static state.
        on: the columns to look up by; for one of Tidemark's in the order of its key. function: a QueryFunction, or
        None for MapGet of the measures that `columns` names; `columns` are what it emits, name to Spark type.
        One call per Arrow batch, in which every input comes once. Trident's stateQuery.
        """
        return self._step(_query, state, tuple(on), function or MapGet(tuple(columns)), columns, costly=True)

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

        state: one of Tidemark's, whose key columns the stream must have: all tuples of a key come to one task, which
        writes in the transaction that checks the fence; or a factory for a store of your own, which is told
        `begin_commit(txid)` and `commit(txid)` and gets the partitions as they are.
        name: what errors call a store of your own. order_by: the order of the tuples of a key.
        emits: columns of the new values stream, name to Spark type.
        due: a timer per key. The name of a field of a JSON value, or of a stored timestamptz column, that holds a
        time; when the watermark reaches it the key comes as a tuple of its own with `woken` true and every other
        column null (and `woken` is false in all others). At most 100,000 wake in a batch, the earliest first.
        """
        return PartitionPersist(self, state, updater, name, tuple(order_by), dict(emits or {}), due)

    def _step(self, make: Callable[..., Step], *arguments: object, costly: bool) -> "Stream":
        return Stream((self,), make(*arguments), costly=costly)


@dataclass(frozen=True, eq=False)
class GroupedStream:
    """A stream and what it is grouped by, name to Spark SQL expression."""

    stream: Stream
    keys: dict[str, str]

    def aggregate(self, **columns: str) -> Stream:
        """Aggregate the groups of each batch by itself: `group_by("word").aggregate(n="count(1)")`."""
        return self.stream.transform(lambda events: _aggregate(events, self.keys, columns))

    def persistent_aggregate(self, spec: StateSpec) -> "PersistentAggregate":
        """Fold each group into the row of its key. The groups' names must be the state's key columns.

        Raises PipelineError naming the columns that differ.
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
    """A state and the groups that are folded into it. Trident's persistentAggregate."""

    stream: Stream
    keys: dict[str, str]
    spec: StateSpec

    @property
    def name(self) -> str:
        return self.spec.name

    def new_values_stream(self) -> Stream:
        """Return the stream of what each batch made of the keys it touched. Trident's newValuesStream.

        Columns: the key, each measure as a reader will see it, and for an opaque state `prev_<measure>`, as readers
        saw it before; null where the key is new.
        """
        return Stream((self,), _as_it_is)


@dataclass(frozen=True, eq=False)
class PartitionPersist:
    """A state and the updater that is given the tuples. Trident's partitionPersist."""

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
                f"state {self.name!r}: due {self.due!r} is no time it stores; name a field of its JSON value, or a "
                "stored timestamptz column"
            )

    @property
    def spec(self) -> StateSpec | None:
        return self.state if isinstance(self.state, StateSpec) else None

    @property
    def name(self) -> str:
        return self.spec.name if self.spec else self.store or type(self.state).__name__

    def new_values_stream(self) -> Stream:
        """Return the stream of what the updater emitted. Trident's newValuesStream."""
        if not self.emits:
            raise PipelineError(f"state {self.name!r}: emits nothing; declare emits={{column: type}}")
        return Stream((self,), _as_it_is)


# What a batch feeds, and everything that has a frame in it.
FedState = PersistentAggregate | PartitionPersist
Node = Source | Stream | FedState


def tumbling(column: str, width: str) -> str:
    """Return the expression for the start of the window an event falls in: `tumbling("time_hour", "1 hour")`."""
    return f"window({quoted(column)}, '{width}').start"


def sliding(column: str, width: str, slide: str) -> str:
    """Return the expression for the starts of all windows an event falls in, for `each`: one row per window."""
    starts = f"window({quoted(column)}, '{slide}').start"
    return f"explode(sequence({starts} - interval '{width}' + interval '{slide}', {starts}, interval '{slide}'))"


def _as_it_is(context: BatchContext, events: "DataFrame") -> "DataFrame":
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

        # A tuple without a time is nobody's to judge.
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
