"""Recountable: decides whether a state can be counted again from its sources, and names the reason if it cannot.

A recount reads the input of many batches as one. Its result equals that of the batches only if nothing depended on
where a batch ended, on when it ran, or on what was stored by then, and only if all of the input was counted into the
state. A condition that cannot be checked counts as not met.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import psycopg
from psycopg.rows import class_row
from pyspark.sql import DataFrame, SparkSession

from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.pipeline import Pipeline, upstream
from tidegauge.pipelines.declare.stream import Node, PartitionPersist, PersistentAggregate, Stream
from tidegauge.pipelines.errors import RecountError
from tidegauge.pipelines.sources.guarantee import EXACTLY_ONCE
from tidegauge.pipelines.sources.source import RereadSource, Source
from tidegauge.pipelines.spark.session import plan_nodes
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

# The plan nodes that process each tuple by itself. `Expand` makes the rows of sliding windows.
BY_TUPLE = {
    "Project", "Filter", "Generate", "Expand", "Union", "Repartition", "RepartitionByExpression", "Sort",
    "SubqueryAlias", "LocalRelation", "LogicalRDD", "ResolvedHint",
}  # fmt: skip

REFUSED_KEYS = 10_000

POSITION = """
SELECT p.committed_txid AS txid, p.fed_after, p.epoch, b.batch_id, b.batch_time, b.total_dropped AS dropped,
    s.since_txid, s.last_fed_txid, s.measures_since, s.measures_last_fed, first.batch_time AS fed_since,
    least(s.ttl, (SELECT min(t.value::interval) FROM tidegauge.batch r, jsonb_each_text(r.ttls) t
                  WHERE r.pipeline = p.name AND r.txid > p.fed_after AND t.key = s.name)) AS shortest_ttl
FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline
JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = p.committed_txid
LEFT JOIN tidegauge.batch first ON first.pipeline = p.name AND first.txid = p.fed_after + 1
WHERE s.name = %s
"""

# Groups and keys that a task has left out because a measure was out of range.
REFUSED = """
SELECT l.line FROM tidegauge.dead_letter l JOIN tidegauge.pipeline p ON p.name = l.pipeline
WHERE p.name = %s AND l.state = %s AND l.txid > p.fed_after AND l.part >= 0 AND l.reason LIKE 'measure %%' LIMIT %s
"""


@dataclass(frozen=True)
class Position:
    """A state at the committed batch. fed_after: the batch before the first one that fed the present states.

    dropped: late events that were left out until then. fed_since: the time of the first batch; None: no longer known.
    shortest_ttl: the shortest that the state has had since then. The other fields are those of tidegauge.state.
    """

    txid: int
    fed_after: int
    epoch: str
    batch_id: int
    batch_time: datetime
    dropped: int | None
    since_txid: int
    last_fed_txid: int | None
    measures_since: Mapping[str, int]
    measures_last_fed: Mapping[str, int]
    fed_since: datetime | None
    shortest_ttl: timedelta | None

    def is_younger(self, at: datetime) -> bool:
        """Return whether no key can have expired before that time; always true without a ttl."""
        return self.shortest_ttl is None or (self.fed_since is not None and at - self.fed_since < self.shortest_ttl)


def find_position(conn: psycopg.Connection, state: str) -> Position | None:
    """Return the position of a state; None if no batch has been committed."""
    with conn.cursor(row_factory=class_row(Position)) as cursor:
        return cursor.execute(POSITION, [state]).fetchone()


def position(conn: psycopg.Connection, state: str) -> Position:
    """Return the position of a state. Raises RecountError unless its rows hold all input of its pipeline up to it."""
    found = find_position(conn, state)
    if found is None:
        raise RecountError(f"state {state!r}: no batch has been committed")
    for obstacle in _obstacles(found):
        raise RecountError(f"state {state!r}: {obstacle}")
    return found


def _obstacles(found: Position) -> Iterator[str]:
    if found.since_txid > found.fed_after:
        yield f"it was added after batch {found.since_txid}, or fed again from there, so it lacks the input before"
    if found.last_fed_txid is not None:
        yield f"it has not been fed since batch {found.last_fed_txid}"
    if found.batch_id != found.txid - found.fed_after - 1:
        yield "its pipeline was bound to another checkpoint by --rebind, so it is not known what has been counted"
    if found.dropped is None or found.dropped > 0:
        yield f"{found.dropped or 'an unknown number of'} events came after the watermark and were left out"
    if not found.is_younger(found.batch_time):
        yield f"its keys end {found.shortest_ttl} after their last update, so some may have expired and started again"


def recountable(pipeline: Pipeline, stored: StateSpec, at: Position) -> tuple[PersistentAggregate, list[str]]:
    """Return how a state is fed, with only the measures that can be recounted, and why each of the others cannot.

    stored: the state as the catalog has it. Raises RecountError if no measure can be recounted.
    """
    fed = next((each for each in pipeline.ordered if each.name == stored.name), None)
    if not isinstance(fed, PersistentAggregate):
        why = "its pipeline does not feed it now" if fed is None else "its updater gets the tuples batch by batch"
        raise RecountError(f"state {stored.name!r}: {why}")
    if stored.tiling is not None:
        raise RecountError(f"state {stored.name!r}: compaction folds its tiles, so its rows are not what was counted")
    if list(fed.spec.key.items()) != list(stored.key.items()) or fed.spec.kind != stored.kind:
        raise RecountError(f"state {stored.name!r}: its declaration differs from the stored one; start its driver")
    _check_sources(fed)
    if pipeline.guarantees[stored.name] != EXACTLY_ONCE:
        raise RecountError(f"state {stored.name!r}: its guarantee is {pipeline.guarantees[stored.name]!r}")
    left = {name: _why_not(name, fed.spec, stored, at) for name in stored.measures}
    measures = {name: fed.spec.measures[name] for name, why in left.items() if not why}
    remarks = [f"measure {name!r} is not compared: {why}" for name, why in left.items() if why]
    if not measures:
        raise RecountError(f"state {stored.name!r}: {remarks[0]}")
    return replace(fed, spec=replace(fed.spec, measures=measures)), remarks


def _check_sources(fed: PersistentAggregate) -> None:
    for node in upstream(fed.stream):
        if isinstance(node, PersistentAggregate | PartitionPersist):
            raise RecountError(f"state {fed.name!r}: it is fed with the new values of state {node.name!r}")
        if not isinstance(node, Stream | RereadSource):
            raise RecountError(f"state {fed.name!r}: {node} cannot give its input again")
        if isinstance(node, Stream) and node.scope == "state":
            raise RecountError(f"state {fed.name!r}: its stream looks up a state, whose values differ by batch")


def _why_not(name: str, declared: StateSpec, stored: StateSpec, at: Position) -> str:
    if at.measures_since.get(name, 0) > at.fed_after:
        return f"it was added after batch {at.measures_since[name]}"
    if name in at.measures_last_fed or name not in declared.measures:
        return "it is not fed now"
    ours, theirs = declared.measures[name], stored.measures[name]
    same = (ours.name, ours.arguments()) == (theirs.name, theirs.arguments())
    return "" if same else "its declaration differs from the stored one"


def check_steps(fed: PersistentAggregate, spark: SparkSession, context: BatchContext) -> None:
    """Raise RecountError unless every step processes each tuple by itself, so that batch boundaries do not matter."""
    frames: dict[Node, DataFrame] = {}
    for node in upstream(fed.stream):
        if isinstance(node, Stream):
            frame = node.step(context, *(frames[each] for each in node.inputs))
            if node.scope != "tuple":
                _check_plan(fed.name, frame)
            frames[node] = spark.createDataFrame([], frame.schema)
        else:
            frames[node] = spark.createDataFrame([], _source(node).schema)


def _source(node: Node) -> Source:
    assert not isinstance(node, Stream | PersistentAggregate | PartitionPersist)
    return node


def _check_plan(state: str, frame: DataFrame) -> None:
    for node in plan_nodes(frame):
        if node.nodeName() not in BY_TUPLE:
            raise RecountError(f"state {state!r}: a step of its stream ({node.nodeName()}) looks at a batch as a whole")
        if not node.deterministic():
            raise RecountError(f"state {state!r}: a step of its stream is not deterministic ({node.nodeName()})")


def refused_keys(conn: psycopg.Connection, pipeline: str, spec: StateSpec) -> set[Key]:
    """Return the keys for which a batch could not be folded, so that their values depend on how batches were cut.

    Raises RecountError if these keys cannot be determined.
    """
    lines = conn.execute(REFUSED, [pipeline, spec.name, REFUSED_KEYS + 1]).fetchall()
    try:
        groups = [json.loads(line) for (line,) in lines]
        keys = {spec.check_key(tuple(group[name] for name in spec.key)) for group in groups}
    except (ValueError, KeyError, KeyShapeError):
        keys = None
    if keys is None or len(lines) > REFUSED_KEYS:
        raise RecountError(f"state {spec.name!r}: dead letters left out input of too many keys, or of unknown ones")
    return keys
