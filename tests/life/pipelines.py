"""Random pipelines over those rows: keys, kinds, aggregators, verbs, windows, updaters, lookups, joins, retraction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from tests.life.rows import SCHEMA
from tidegauge.pipelines.declare.functions import BatchState, Collector
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import FedState, Stream
from tidegauge.pipelines.declare.windows import calendar, sliding, tumbling
from tidegauge.pipelines.operators.counts import RunningTotal, distinct
from tidegauge.pipelines.operators.join import join
from tidegauge.pipelines.operators.keyed import fold_by_key
from tidegauge.pipelines.operators.reorder import in_order
from tidegauge.pipelines.operators.sessions import closed_sessions
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.aggregators import (
    Count,
    DistinctCount,
    DistinctSet,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    RetractableMax,
    RetractableMin,
    RowCount,
    StdDev,
    Sum,
    TopK,
    Variance,
)

# Key type to the column that has it.
KEYS = {
    "text": "t",
    "bigint": "n",
    "integer": "i",
    "boolean": "b",
    "double precision": "x",
    "timestamptz": "at",
    "date": "d",
    "uuid": "u",
}

MEASURES: list[Callable[[], Any]] = [
    Count,
    lambda: Count("n > 0"),
    lambda: Sum("n", type="bigint"),
    lambda: Sum("n"),
    lambda: Sum("m", type="numeric(30, 4)"),
    lambda: Sum("x", type="double precision"),
    lambda: Mean("m", type="numeric"),
    lambda: Mean("small"),
    lambda: Min("n", type="bigint"),
    lambda: Max("x"),
    lambda: Min("at", type="timestamptz"),
    lambda: Max("t", type="text"),
    lambda: Min("m", type="numeric"),
    lambda: First("n", by="at", type="bigint"),
    lambda: Last("t", by="at", type="text"),
    lambda: Latest("n", "b", by="at", n="bigint", b="boolean"),
    lambda: Variance("small"),
    lambda: StdDev("small", of="population"),
    lambda: DistinctCount("t", type="text"),
    lambda: DistinctSet("n", type="bigint"),
    lambda: TopK("t"),
]
SIGNED_MEASURES: list[Callable[[], Any]] = [
    Count,
    lambda: Sum("n", type="bigint"),
    lambda: Sum("m", type="numeric(30, 4)"),
    lambda: Mean("m", type="numeric"),
    lambda: RetractableMin("n", type="bigint"),
    lambda: RetractableMax("x"),
]


NO_NAMES: Mapping[str, str] = {}


@dataclass(frozen=True)
class Append:
    """Appends a column of each tuple to the list of its key. key: the key columns of the state."""

    key: tuple[str, ...]
    column: str

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(
            state, tuples, self.key, lambda stored, rows: [*(stored or ()), *(row[self.column] for row in rows)]
        )


class RandomPipeline:
    """A pipeline of one to three states or chains of them, drawn by a seed. signed: whether it reads a changing table.

    revertible: whether all of its states are opaque. folder: of the files that it reads. names: what states and the
    pipeline are called instead of the names that are drawn.
    """

    def __init__(
        self,
        random: Random,
        number: int | str,
        folder: str | Path = "/nowhere/rows",
        names: Mapping[str, str] = NO_NAMES,
    ) -> None:
        self._random = random
        self._number = number
        self._names = names
        self._states = 0
        self.signed = random.random() < 0.2
        self.revertible = self.signed or random.random() < 0.8
        source = JsonFiles(folder, schema=SCHEMA, max_bad_share=1.0, files_per_batch=1)
        read = Stream.read(source)
        if random.random() < 0.3:
            read = read.reject("small = 5 OR n = 7", reason="five or seven")
        self._read = read.each(one="1L").with_watermark("at", "1 hour")
        if self.signed:
            self._read = self._read.retract("sign")
        feeds = [feed for _ in range(random.randint(1, 3)) for feed in self._feeds()]
        self.pipeline = Pipeline(self._named(f"life_{number}"), feeds)

    def _named(self, name: str) -> str:
        return self._names.get(name, name)

    def _feeds(self) -> list[FedState]:
        stream = self._stream()
        if self.signed:
            return [self._aggregate(stream)]
        made: list[Callable[[Stream], list[FedState]]] = [
            lambda stream: [self._aggregate(stream)],
            lambda stream: [self._aggregate(stream)],
            self._windowed,
            self._chain,
            self._asked,
            self._updated,
            self._listed,
            self._once,
            self._sessions,
            self._ordered,
            self._joined,
        ]
        return self._random.choice(made)(stream)

    def _stream(self) -> Stream:
        steps: list[Callable[[Stream], Stream]] = [
            lambda stream: stream,
            lambda stream: stream.where("place % 3 <> 1"),
            lambda stream: stream.each(t="upper(t)"),
            lambda stream: stream.each(small="explode(array(small, 1))"),
        ]
        if not self.signed:
            steps.append(lambda stream: stream.merge(stream.where("b")))
        return self._random.choice(steps)(self._read)

    # States

    def _spec(self, key: dict[str, Any], measures: dict[str, Any] | None = None, **given: Any) -> StateSpec:
        self._states += 1
        random, name = self._random, self._named(f"life_{self._number}_{self._states}")
        on_redis = random.random() < 0.3
        given = {"kind": "opaque" if self.revertible else random.choice(["opaque", "transactional"]), **given}
        ttl = random.choice([None, None, timedelta(seconds=30), timedelta(days=1)])
        terms: dict[str, Any] = {"ttl": None if self.signed else ttl, "changelog": random.random() < 0.5}
        if on_redis:
            # Drawn apart, so that the other choices of a seed do not depend on it.
            buckets = Random(f"{self._number} {self._states}").choice([1, 3, 8])
            terms |= {"backend": "redis", "partitions": buckets if key else 1}
        else:
            terms["partitions"] = random.choice([1, 1, 3]) if key else 1
        return StateSpec(name, key=key, measures=measures or {}, **{**terms, **given})

    def _key(self) -> dict[str, str]:
        """Return a key of up to three columns, as columns to types."""
        types = self._random.sample(sorted(KEYS), self._random.choice([0, 1, 1, 1, 2, 3]))
        return {KEYS[kind]: kind for kind in types}

    def _measures(self) -> dict[str, Any]:
        chosen = self._random.sample(SIGNED_MEASURES if self.signed else MEASURES, self._random.randint(1, 4))
        measures = {f"m{place}": measure() for place, measure in enumerate(chosen)}
        return {"rows": RowCount(), **measures} if self.signed else measures

    def _aggregate(self, stream: Stream) -> FedState:
        key = self._key()
        return stream.group_by(*key).persistent_aggregate(self._spec(key, self._measures()))

    def _windowed(self, stream: Stream) -> list[FedState]:
        windows = [
            tumbling("at", "25 minutes"),
            sliding("at", "3 hours", "50 minutes"),
            calendar("at", "week", "Europe/Berlin"),
            calendar("at", "month", "America/New_York"),
        ]
        spec = self._spec({"t": "text", "start": "timestamptz"}, self._measures())
        grouped = stream.group_by("t", start=self._random.choice(windows))
        if self._random.random() < 0.5:
            return [grouped.persistent_aggregate(spec)]
        counted = grouped.persistent_aggregate(spec, allowed_lateness="10 minutes")
        closed = self._spec({"start": "timestamptz"}, {"n": Count()})
        return [counted, counted.closed_windows().group_by("start").persistent_aggregate(closed)]

    def _chain(self, stream: Stream) -> list[FedState]:
        by_text = stream.group_by("t").persistent_aggregate(self._spec({"t": "text"}, {"n": Count()}, ttl=None))
        sizes = self._spec({"n": "bigint"}, {"keys": Sum("change", type="bigint")}, ttl=None)
        moved = by_text.new_values_stream().each(
            pair="explode(array(named_struct('n', n, 'change', 1L), named_struct('n', prev_n, 'change', -1L)))"
            if by_text.spec.kind == "opaque"
            else "named_struct('n', n, 'change', 1L)"
        )
        return [moved.each(n="pair.n", change="pair.change").group_by("n").persistent_aggregate(sizes)]

    def _asked(self, stream: Stream) -> list[FedState]:
        seen = self._spec({"u": "uuid"}, {"before": Count()}, kind="opaque")
        found = self._spec({"before": "bigint"}, {"n": Count(), "keys": DistinctCount("u", type="text")})
        asked = stream.state_query(seen, ["u"], before="bigint").each(before="coalesce(before, 0)")
        return [
            stream.group_by("u").persistent_aggregate(seen),
            asked.group_by("before").persistent_aggregate(found),
        ]

    def _updated(self, stream: Stream) -> list[FedState]:
        key = self._key() or {"t": "text"}
        spec = self._spec(key, {"total": Sum("one", type="bigint")}, kind="opaque")
        return [stream.partition_persist(spec, RunningTotal(tuple(key), total="total", change="one"))]

    def _listed(self, stream: Stream) -> list[FedState]:
        """Which rows were counted, in their order: a list tells more than a sum."""
        spec = self._spec({"t": "text"}, value="jsonb", kind="opaque")
        return [stream.partition_persist(spec, Append(("t",), "place"), order_by=["place"])]

    def _once(self, stream: Stream) -> list[FedState]:
        seen = self._spec(self._key() or {"u": "uuid"}, value="jsonb", kind="opaque")
        first = distinct(stream, seen, first_by=["place"])
        return [self._aggregate(first)]

    def _sessions(self, stream: Stream) -> list[FedState]:
        held = self._spec({"b": "boolean"}, value="jsonb", kind="opaque", ttl=None)
        closed = closed_sessions(stream, held, "at", timedelta(minutes=30))
        ended = self._spec({"b": "boolean", "started": "timestamptz"}, {"events": Sum("events", type="bigint")})
        return [closed.group_by("b", "started").persistent_aggregate(ended)]

    def _ordered(self, stream: Stream) -> list[FedState]:
        held = self._spec({"b": "boolean"}, value="jsonb", kind="opaque", ttl=None)
        return [self._aggregate(in_order(stream, held, "at"))]

    def _joined(self, stream: Stream) -> list[FedState]:
        left = stream.project("t", "at", "place")
        right = stream.where("b").each(then="at", other="place").project("t", "then", "other")
        held = self._spec({"t": "text"}, value="jsonb", kind="opaque", ttl=None)
        how = self._random.choice(["inner", "left", "full"])
        pairs = join(left, right, held, times=("at", "then"), within=timedelta(minutes=30), how=how)
        found = {"pairs": Count("place + other IS NOT NULL"), "alone": Count("other IS NULL"), "sum": Sum("place")}
        return [pairs.group_by("t").persistent_aggregate(self._spec({"t": "text"}, found))]
