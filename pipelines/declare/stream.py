"""Stream: the verbs that declare what to compute. Nothing runs until a Driver runs the pipeline.

The verbs are those of Trident's Stream and GroupedStream (apache/storm, org.apache.storm.trident). A condition or
expression is Spark SQL; a function is Python.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import starmap
from typing import TYPE_CHECKING, Literal, Union

from tidegauge.pipelines.declare.context import BatchContext, Step
from tidegauge.pipelines.declare.event_time import interval
from tidegauge.pipelines.declare.functions import Function, MapGet, QueryFunction, StateFactory, StateUpdater
from tidegauge.pipelines.declare.lateness import WINDOW, Closing, Cutoff, before_watermark, in_time, late_ones
from tidegauge.pipelines.declare.rules import Rule
from tidegauge.pipelines.declare.windows import check_finest_tile
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.given import Given
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.source import SIGN, Source
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.spec.state_spec import StateSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Watermark:
    """The latest time seen in `column`, minus `delay` (a Spark interval: `1 hour`); see Stream.with_watermark."""

    column: str
    delay: str
    drop_late: bool
    idle_after: str | timedelta | None = None


@dataclass(frozen=True, eq=False)
class Stream:
    """Tuples and the steps that are applied to them. Streams do not change: every verb returns a new one.

    inputs: a source, streams, or a state whose new values it reads. step: makes its frame from the inputs' frames.
    costly: worth caching if more than one stream reads it. scope: whether the step looks at each tuple by itself, or
    also at a state; None: known only from the plan of its frame. queries: the name of the state that it looks up.
    cutoff: what it leaves out as too late. late_of: the stream whose late tuples it has. signed: whether its tuples
    have a SIGN. watermark: declared by it, if any. rule: by which it rejects rows, if any.
    Two streams are equal only if they are the same object.
    """

    inputs: tuple[Union[Source, "Stream", "FedState"], ...]
    step: Step
    watermark: Watermark | None = None
    costly: bool = False
    scope: Literal["tuple", "state"] | None = None
    queries: str | None = None
    cutoff: Cutoff | None = None
    late_of: "Stream | None" = None
    signed: bool = False
    rule: Rule | None = None

    @property
    def retracts(self) -> bool:
        """Whether tuples with a sign below 0 are taken away from the states that it feeds."""
        return self.signed or any(each.retracts for each in self.inputs if isinstance(each, Stream))

    @classmethod
    def read(cls, source: Source) -> "Stream":
        """Return the stream of a source's events, with the columns of its schema."""
        return cls((source,), _unchanged)

    @classmethod
    def given(
        cls,
        schema: Union[str, "StructType", None] = None,
        *,
        spout: Spout = "opaque",
        max_bad_share: float = 0.5,
    ) -> "Stream":
        """Return the stream of the rows that a Spark application gives to `tidegauge.sink(pipeline)`.

        schema: the columns to read from its DataFrame, as Spark DDL or a StructType; None: all, as they are.
        spout: what its query promises about a batch that is replayed: `opaque` if it may have other rows under the same
        number, `transactional` if it has the same ones.
        max_bad_share: a batch fails if a state rejects a larger share of its events than this, and more than 10.
        """
        return cls((Given(schema, spout, max_bad_share),), _unchanged)

    def where(self, condition: str) -> "Stream":
        """Keep the tuples for which a condition is true, such as `dep_time is not null`. Trident's filter."""
        return self.transform(lambda events: events.where(condition))

    def reject(self, condition: str, *, reason: str) -> "Stream":
        """Leave out the rows that break a rule, as dead letters: `reject("price < 0", reason="price below zero")`.

        condition: true for a row to reject. A row for which it is null is kept, as by a CHECK of SQL; to reject it too,
        write `price is null or price < 0`.
        reason: what the dead letters say, one line of at most 200 characters, the same for all.
        The letters count towards the `max_bad_share` of the source. Each has the row as the source gave it. A replay
        runs the row through the whole pipeline as it is declared then, so a row that a relaxed rule lets through counts
        once, in every state.
        Raises PipelineError for any other reason. When the pipeline is declared or starts, also where a replay could
        not be exact: after merge(), project(), aggregates, lookups, Python functions and explode(), on a state's
        new values, and where the source also feeds something that does not come after the rule.
        """
        rule = Rule(condition, reason)
        return Stream((self,), rule.keep, rule=rule)

    def project(self, *columns: str) -> "Stream":
        """Keep only these columns. Trident's project."""
        return self.transform(lambda events: events.select(*map(quoted, columns)))

    def each(self, function: Function | None = None, on: Sequence[str] = (), /, **columns: str) -> "Stream":
        """Add or replace columns. Trident's each.

        Without a function, `columns` is name to expression; one of them may return many rows, as `explode(..)` does.
        function: called once per tuple with the values of the columns `on`. It returns zero or more tuples of the new
        values; each makes one row beside the other columns. Then `columns` is name to Spark type, in the order emitted.
        When the pipeline starts, raises PipelineError for a type that is not Spark's or a column in `on` that is
        missing; a batch fails with it if a tuple has another length or type than declared.
        """
        if function is None:
            return self.transform(lambda events: _with_columns(events, columns))
        return Stream((self,), _apply(function, tuple(on), columns), costly=True, scope="tuple")

    def transform(self, step: Callable[["DataFrame"], "DataFrame"]) -> "Stream":
        """Apply `step`, a function from DataFrame to DataFrame, to each micro-batch. It must be deterministic."""
        return Stream((self,), lambda context, events: step(events))

    def retract(self, sign: str = SIGN) -> "Stream":
        """Take the tuples with a sign below 0 away from the states that this feeds, instead of counting them.

        sign: Spark SQL, below 0 for a row as it was before a change: `if(op = 'delete', -1, 1)`; by default the column
        that `PostgresChanges(.., old_rows="full")` has. The verbs that follow keep it in the column `_sign`;
        `aggregate()` and an updater see it as a column. A row that is taken away must be the same as when it was
        counted, so the steps that follow must depend only on the tuple.
        The states need measures that can subtract: Count, RowCount, and exact Sum and Mean; RetractableMin and
        RetractableMax. A pipeline raises PipelineError if it feeds states with other measures.
        """
        return Stream((self,), _with_sign(sign), signed=True)

    def merge(self, *others: "Stream") -> "Stream":
        """Combine the tuples with those of `others` by column name; a missing column becomes null. Trident's merge."""
        return Stream((self, *others), _merge)

    def partition_by(self, *columns: str) -> "Stream":
        """Put tuples with equal values of `columns` into one partition, for a `partition_persist` into your own store.

        Trident's partitionBy.
        """
        return self.transform(lambda events: events.repartition(*map(quoted, columns)))

    def with_watermark(
        self,
        column: str,
        delay: str,
        *,
        drop_late: bool = False,
        allowed_lateness: str | timedelta | None = None,
        idle_after: str | timedelta | None = None,
    ) -> "Stream":
        """Declare how late tuples may arrive: `with_watermark("time", "1 hour")`.

        column: a timestamp. delay: a Spark interval. A tuple is late if its time is before the watermark of the
        earlier batches. Late tuples are counted in the batch's figures; a tuple without a time is never late. The
        watermark fires timers (see `partition_persist`). A pipeline with several watermarks uses the earliest. A time
        more than a day after the batch's own time does not advance it.
        allowed_lateness: tuples that are later than this are left out, counted, and kept as dead letters, or given to
        `late()`. drop_late: leave out all late tuples, which are then only counted.
        idle_after: a stream without tuples for this long, by the clock of the batches, does not hold the watermark
        back; once all are idle, the watermark advances with that clock, and the timers that it reaches fire in batches
        without input. Make it longer than the usual pauses of the source; needs Spark 4.
        Raises PipelineError for an interval of no fixed length; when the pipeline starts, if the column is not a
        timestamp or the delay not an interval.
        """
        if idle_after is not None and interval(idle_after) <= timedelta():
            raise PipelineError(f"watermark on {column!r}: idle_after {idle_after!r} must be longer than zero")
        if drop_late and allowed_lateness is not None:
            raise PipelineError(f"watermark on {column!r}: give drop_late or allowed_lateness, not both")
        step = in_time(before_watermark(column)) if drop_late else _unchanged
        marked = Stream((self,), step, Watermark(column, delay, drop_late, idle_after))
        if allowed_lateness is None:
            return marked
        return marked._without_late(before_watermark(column, interval(allowed_lateness)))

    def late(self) -> "Stream":
        """Return the tuples that this stream leaves out as too late. They then do not become dead letters.

        Raises PipelineError unless it was declared with `allowed_lateness`.
        """
        if self.cutoff is None:
            raise PipelineError("the stream leaves nothing out as too late; call late() on one with allowed_lateness")
        return Stream(self.inputs, late_ones(self.cutoff), late_of=self)

    def _without_late(self, cutoff: Cutoff) -> "Stream":
        return Stream((self,), in_time(cutoff), cutoff=cutoff)

    def group_by(self, *columns: str, **expressions: str) -> "GroupedStream":
        """Group by columns and by named expressions: `group_by("origin", hour=tumbling("time", "1 hour"))`.

        Trident's groupBy.
        """
        return GroupedStream(self, {column: quoted(column) for column in columns} | expressions)

    def aggregate(self, **columns: str) -> "Stream":
        """Aggregate each batch on its own into one tuple: `aggregate(total="sum(count)")`. Trident's aggregate.

        columns: name to an aggregate in Spark SQL.
        """
        return GroupedStream(self, {}).aggregate(**columns)

    def persistent_aggregate(self, spec: StateSpec) -> "PersistentAggregate":
        """Fold all events into the single row of a state without key columns.

        spec: the state's. Raises PipelineError if the state has key columns, or no measures.
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

        state: a Tidegauge state, as committed before this batch, or a factory for a store of your own.
        on: the columns to look up by; for a Tidegauge state in the order of its key. function: a QueryFunction, or None
        for MapGet of the measures that `columns` names. columns: what it emits, name to Spark type.
        The function is called once per Arrow batch, with each distinct input once. Trident's stateQuery.
        When the pipeline starts, raises PipelineError if `on` does not fit the state's key, or if the pipeline itself
        feeds the state and it is not opaque, because a replay would then find its own rows.
        """
        step = _query(state, tuple(on), function or MapGet(tuple(columns)), columns)
        queried = state.name if isinstance(state, StateSpec) else None
        return Stream((self,), step, costly=True, scope="state", queries=queried)

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

        state: a Tidegauge state, or a factory for a store of your own. The stream must have the key columns of a
        Tidegauge state; one task gets all tuples of a key and writes in the transaction that checks the fence. A store
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

    def persistent_aggregate(
        self, spec: StateSpec, *, allowed_lateness: str | timedelta | None = None
    ) -> "PersistentAggregate":
        """Fold each group into the row of its key. The groups must have the names of the state's key columns.

        allowed_lateness: one of the keys must be a window; it closes once the watermark is this far beyond its end. An
        event that comes after its window has closed is left out, counted, and kept as a dead letter, or given to
        `late()`. `closed_windows()` returns what the windows held when they closed.
        Raises PipelineError if the names differ, if the state has no measures, with allowed_lateness unless exactly
        one key is a window that can close, and for tiles unless the last key is the window of the finest tile.
        """
        if set(self.keys) != set(spec.key) or not spec.measures:
            raise PipelineError(
                f"state {spec.name!r}: grouped by {', '.join(self.keys) or 'nothing'}, but its key is "
                f"{', '.join(spec.key) or 'empty'} and its measures are {', '.join(spec.measures) or 'none'}; "
                "name the groups after the key columns, and give the state a measure"
            )
        check_finest_tile(spec, self.keys, may_close=allowed_lateness is not None)
        if allowed_lateness is None:
            return PersistentAggregate(self.stream, self.keys, spec)
        closing = Closing.of(spec, self.keys, interval(allowed_lateness))
        windowed = self.stream.each(**{WINDOW: closing.window})._without_late(closing.cutoff)
        return PersistentAggregate(windowed, self.keys | {closing.column: WINDOW}, spec, closing)


@dataclass(frozen=True, eq=False)
class PersistentAggregate:
    """A state and the groups that are folded into it: what `persistent_aggregate` returns."""

    stream: Stream
    keys: dict[str, str]
    spec: StateSpec
    closing: Closing | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    def new_values_stream(self) -> Stream:
        """Return the stream of the new values of the keys that each batch updated. Trident's newValuesStream.

        Columns: the key; each measure as readers will see it; and for an opaque state `prev_<measure>`, the measure as
        readers saw it before the batch, null if the key is new.
        """
        return Stream((self,), _unchanged)

    def closed_windows(self) -> Stream:
        """Return the stream of the windows that close: each once, in the batch that closes it, in order of start.

        Columns: the key, and each measure as readers see it. A window whose row has expired by then is left out, so
        choose a ttl that is longer than the time a window stays open.
        Raises PipelineError unless the state was declared with `allowed_lateness`.
        """
        self._check_closing("closed_windows")
        return Stream((self,), _closed_windows(self), costly=True, scope="state")

    def late(self) -> Stream:
        """Return the events that came after their window had closed, with its start as `_window`; see Stream.late."""
        self._check_closing("late")
        return self.stream.late()

    def _check_closing(self, verb: str) -> None:
        if self.closing is None:
            raise PipelineError(
                f"state {self.name!r}: {verb}() needs windows that close; give persistent_aggregate an "
                "allowed_lateness, such as '0 seconds'"
            )


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
        if self.spec is not None and self.spec.tiling is not None:
            raise PipelineError(
                f"state {self.name!r}: has tiles, which only aggregators can fold; feed it with persistent_aggregate"
            )
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


def _closed_windows(fed: PersistentAggregate) -> Step:
    def closed(context: BatchContext, new_values: "DataFrame") -> "DataFrame":
        from tidegauge.pipelines.declare.closed_windows import closed_windows

        return closed_windows(new_values.sparkSession, fed, context)

    return closed


def _unchanged(context: BatchContext, events: "DataFrame") -> "DataFrame":
    return events


def _merge(context: BatchContext, first: "DataFrame", *others: "DataFrame") -> "DataFrame":
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first


def _with_sign(sign: str) -> Step:
    def add(context: BatchContext, events: "DataFrame") -> "DataFrame":
        return check_sign(events) if sign == SIGN else _with_columns(events, {SIGN: sign})

    return add


def check_sign(events: "DataFrame") -> "DataFrame":
    """Return the events. Raises PipelineError if they have no sign."""
    if SIGN not in events.columns:
        raise PipelineError(
            f"the stream has no column {SIGN!r}, which says whether a row is taken away; there are "
            f"{', '.join(events.columns)}; keep it in project(), leave out aggregate(), read PostgresChanges(.., "
            "old_rows='full'), or pass the sign to retract()"
        )
    return events


def _with_columns(events: "DataFrame", columns: Mapping[str, str]) -> "DataFrame":
    kept = [quoted(name) for name in events.columns if name not in columns]
    return events.selectExpr(*kept, *_named(columns))


def _aggregate(events: "DataFrame", keys: Mapping[str, str], columns: Mapping[str, str]) -> "DataFrame":
    from pyspark.sql import functions as F

    return events.groupBy(*map(F.expr, _named(keys))).agg(*map(F.expr, _named(columns)))


def _named(expressions: Mapping[str, str]) -> list[str]:
    return [f"{expression} AS {quoted(name)}" for name, expression in expressions.items()]


def _apply(function: Function, on: tuple[str, ...], columns: dict[str, str]) -> Step:
    def apply(context: BatchContext, events: "DataFrame") -> "DataFrame":
        from tidegauge.pipelines.declare.tuples import with_emitted

        return with_emitted(events, on, lambda: nullcontext(lambda inputs: starmap(function, inputs)), columns)

    return apply


def _query(
    state: StateSpec | StateFactory, on: tuple[str, ...], function: QueryFunction, columns: dict[str, str]
) -> Step:
    def query(context: BatchContext, events: "DataFrame") -> "DataFrame":
        from tidegauge.pipelines.declare.state_query import with_answers

        return with_answers(events, on, state, function, columns, context)

    return query


def _is_time(spec: StateSpec | None, name: str) -> bool:
    return spec is not None and (not spec.measures or spec.value_columns.get(name) == "timestamptz")
