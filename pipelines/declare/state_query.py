"""state_query on executors: looks up the tuples of an Arrow batch, each distinct input once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from pyspark.sql import DataFrame

from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.functions import QueryFunction, StateFactory, Values, opened_state
from tidegauge.pipelines.declare.keys import check_keys
from tidegauge.pipelines.declare.tuples import Emit, OpenEmit, with_emitted
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.spark.session import at_most
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.committed import ledger_sql
from tidegauge.state_backends.errors import KeyShapeError, UnknownStateError
from tidegauge.state_backends.maps import MAPS
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec


class CommittedState:
    """Reads one of Tidegauge's states as it was committed before the current batch.

    conn: a connection used only for reads of this state. Every call sees one whole batch. If the pipeline itself feeds
    the state, every attempt at the batch sees the same one. A row whose ttl has passed at the batch's time is absent.
    """

    def __init__(self, conn: psycopg.Connection, spec: StateSpec, context: BatchContext) -> None:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.read_only = True
        self.spec = spec
        self._conn = conn
        self._context = context

    def multi_get(self, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        """Return the finished measures of each key, or `{"value": ..}`; None where the key is absent.

        A key that no state can hold, such as one with a null, is absent.
        """
        places = {place: key for place, key in enumerate(keys) if self._can_be(key)}
        found: list[dict[str, Any] | None] = [None] * len(keys)
        with self._conn.transaction():
            for place, value in zip(places, self._values(list(places.values())), strict=True):
                found[place] = None if value is None else self.spec.finish(value)
        return found

    def _values(self, keys: Sequence[Key]) -> list[Any]:
        context, batch = self._context, self._context.batch
        if self.spec.name not in context.own:
            spec, txid = served_spec(self._conn, self.spec)
            return context.backends[spec.backend].committed_values(self._conn, spec, keys, txid, batch.batch_time)
        # At this batch's txid, the map reads the version before the batch, which is the committed one.
        counts = MAPS[self.spec.kind](context.session(self._conn, self.spec).rows)
        counts.begin_commit(batch.txid, at=batch.batch_time)
        return counts.multi_get(keys)

    def _can_be(self, key: Key) -> bool:
        try:
            self.spec.check_key(key)
        except KeyShapeError:
            return False
        return True


def served_spec(conn: psycopg.Connection, spec: StateSpec) -> tuple[StateSpec, int]:
    """Return another pipeline's state with the ttl that applies to its readers, and its committed txid."""
    row = conn.execute(ledger_sql("s.ttl, p.committed_txid"), [spec.name]).fetchone()
    if row is None:
        raise UnknownStateError(f"state {spec.name!r} is not registered; start the pipeline that feeds it")
    return replace(spec, ttl=row[0]), int(row[1])


def with_answers(
    events: DataFrame,
    on: Sequence[str],
    state: StateSpec | StateFactory,
    function: QueryFunction,
    columns: Mapping[str, str],
    context: BatchContext,
) -> DataFrame:
    """Return one row per tuple that the query function emits for an event, `columns` (name to Spark type) added."""
    check_inputs(events, on, state, context)
    return with_emitted(at_most(context.writers, events), on, lookups(state, function, context), columns)


def check_inputs(events: DataFrame, on: Sequence[str], state: StateSpec | StateFactory, context: BatchContext) -> None:
    """Raise PipelineError if the columns are not the state's key, or if attempts would get different answers."""
    if not isinstance(state, StateSpec):
        return
    if len(on) != len(state.key):
        raise PipelineError(
            f"state {state.name!r}: queried by {', '.join(on) or 'nothing'}, but its key is {', '.join(state.key)}"
        )
    check_keys({name: quoted(column) for name, column in zip(state.key, on, strict=True)}, events, state)
    if state.name in context.own and state.kind != "opaque":
        raise PipelineError(
            f"state {state.name!r}: is {state.kind}, so a batch that is retried would find its own rows in it; "
            "make it opaque to query it in the pipeline that feeds it"
        )


def lookups(state: StateSpec | StateFactory, function: QueryFunction, context: BatchContext) -> OpenEmit:
    """Return a context that opens the state on an executor and gives the function that answers a batch's inputs."""

    @contextmanager
    def opened() -> Iterator[Emit]:
        if isinstance(state, StateSpec):
            with connect(context.dsn, f"{context.batch.pipeline} query {state.name}") as conn:
                yield retriever(CommittedState(conn, state, context), function)
        else:
            with opened_state(state) as made:
                yield retriever(made, function)

    return opened


def retriever(state: Any, function: QueryFunction) -> Emit:
    """Return a function that asks the state for each distinct input once and gives every tuple its answer.

    Raises PipelineError if the query function does not return one result per input.
    """

    def retrieve(inputs: Sequence[Values]) -> Iterable[Iterable[Values]]:
        distinct = list(dict.fromkeys(inputs))
        results = function.batch_retrieve(state, distinct)
        if len(results) != len(distinct):
            raise PipelineError(
                f"{type(function).__name__}.batch_retrieve returned {len(results)} results for {len(distinct)} inputs; "
                "return one per input, in their order"
            )
        emitted = {
            values: list(function.execute(values, result)) for values, result in zip(distinct, results, strict=True)
        }
        return (emitted[values] for values in inputs)

    return retrieve
