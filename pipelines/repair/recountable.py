"""Recountable: whether a state can be counted once more from its sources, and if not, why, by name.

A recount reads the input of many batches as one. That gives what the batches gave only if nothing depended on where one
of them ended, on when it ran, or on what was stored by then; and only if all of the input was counted into the state.
Whatever is not known is taken to be different.
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

# What a query plan may consist of if each tuple is looked at by itself. `Expand` makes the rows of sliding windows.
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

# Groups and keys that a task has left out because of a measure's range.
REFUSED = """
SELECT l.line FROM tidegauge.dead_letter l JOIN tidegauge.pipeline p ON p.name = l.pipeline
WHERE p.name = %s AND l.state = %s AND l.txid > p.fed_after AND l.part >= 0 AND l.reason LIKE 'measure %%' LIMIT %s
"""


@dataclass(frozen=True)
class Position:
    """A state at the committed batch. fed_after: the batch before the first one that fed the present states.

    dropped: late events that were left out until then. fed_since: the time of the first batch; None: no longer known.
    shortest_ttl: of all that were in force. The rest is as in tidegauge.state.
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
        """Return whether no key can have ended by its ttl until then; so it is without a ttl."""
        return self.shortest_ttl is None or (self.fed_since is not None and at - self.fed_since < self.shortest_ttl)


def find_position(conn: psycopg.Connection, state: str) -> Position | None:
    """Return where a state is; None where no batch has been committed."""
    with conn.cursor(row_factory=class_row(Position)) as cursor:
        return cursor.execute(POSITION, [state]).fetchone()


def position(conn: psycopg.Connection, state: str) -> Position:
    """Return where a state is. Raises RecountError unless its rows hold all input of its pipeline up to there."""
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
        yield "its pipeline was bound to another checkpoint by --rebind, and what each of the two has read is not known"
    if found.dropped is None or found.dropped > 0:
        yield f"{found.dropped or 'an unknown number of'} events came after the watermark and were left out"
    if not found.is_younger(found.batch_time):
        yield f"its keys end {found.shortest_ttl} after their last update, so some may have begun again from nothing"


def recountable(pipeline: Pipeline, stored: StateSpec, at: Position) -> tuple[PersistentAggregate, list[str]]:
    """Return how a state is fed, with the measures that can be counted once more, and why each other one cannot.

    stored: the state as the catalog has it. Raises RecountError if none can.
    """
    fed = next((each for each in pipeline.ordered if each.name == stored.name), None)
    if not isinstance(fed, PersistentAggregate):
        why = "its pipeline does not feed it now" if fed is None else "its updater gets the tuples batch by batch"
        raise RecountError(f"state {stored.name!r}: {why}")
    if list(fed.spec.key.items()) != list(stored.key.items()) or fed.spec.kind != stored.kind:
        raise RecountError(f"state {stored.name!r}: its declaration is not the one that is stored; start its driver")
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
            raise RecountError(f"state {fed.name!r}: {node} does not give again what it has given")
        if isinstance(node, Stream) and node.scope == "state":
            raise RecountError(f"state {fed.name!r}: its tuples are looked up in a state, as that was at each batch")


def _why_not(name: str, declared: StateSpec, stored: StateSpec, at: Position) -> str:
    if at.measures_since.get(name, 0) > at.fed_after:
        return f"it was added after batch {at.measures_since[name]}"
    if name in at.measures_last_fed or name not in declared.measures:
        return "it is not fed now"
    ours, theirs = declared.measures[name], stored.measures[name]
    same = (ours.name, ours.arguments()) == (theirs.name, theirs.arguments())
    return "" if same else "its declaration is not the one that is stored"


def check_steps(fed: PersistentAggregate, spark: SparkSession, context: BatchContext) -> None:
    """Raise RecountError unless every step looks at each tuple by itself; else it gives other ones batch by batch."""
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
            raise RecountError(
                f"state {state!r}: a step of its stream does not give the same again ({node.nodeName()})"
            )


def refused_keys(conn: psycopg.Connection, pipeline: str, spec: StateSpec) -> set[Key]:
    """Return the keys of which some batch's share could not be folded: what they hold depends on the batches.

    Raises RecountError if they cannot be told.
    """
    lines = conn.execute(REFUSED, [pipeline, spec.name, REFUSED_KEYS + 1]).fetchall()
    try:
        groups = [json.loads(line) for (line,) in lines]
        keys = {spec.check_key(tuple(group[name] for name in spec.key)) for group in groups}
    except (ValueError, KeyError, KeyShapeError):
        keys = None
    if keys is None or len(lines) > REFUSED_KEYS:
        raise RecountError(f"state {spec.name!r}: shares of batches were left out as dead letters, of too many keys")
    return keys
