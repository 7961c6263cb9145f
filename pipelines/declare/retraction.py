"""Retraction: aggregates over a changing table; a row that is changed or deleted is taken away from them again.

Every tuple of such a stream has a sign: 1 for a row as it is now, -1 for a row as it was before a change. A group's
partial aggregate adds the former and subtracts the latter, so an update, a delete and a row that moves to another group
are ordinary folds: a replay reverts them, and it does not matter how changes are split into batches. Other systems call
this a retract stream or a changelog stream (Apache Flink, "Dynamic Tables": +I, -U, +U, -D).

A measure that cannot subtract is refused when it is declared, because nothing would show that its total is wrong. A row
that a state cannot take on its own, because its key is null or a value has too many places, is left out both when it is
counted and when it is taken away. Whether a total is out of range depends on other rows too. If such a group's share
were left out, later batches would take away rows that were never counted, so the batch fails instead.
"""

from collections.abc import Iterable, Iterator

from tidegauge.pipelines.declare.stream import FedState, PartitionPersist, PersistentAggregate, Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.source import SIGN
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import Aggregator
from tidegauge.state_backends.spec.state_spec import StateSpec

SHOWN = 200  # characters of a group that an error shows

WAYS_OUT = {
    "min": "use RetractableMin, which keeps every value",
    "max": "use RetractableMax, which keeps every value",
    "variance": "keep Sum('x', type='numeric'), the same Sum of each(xx='x * x'), and a Count",
    "std_dev": "keep Sum('x', type='numeric'), the same Sum of each(xx='x * x'), and a Count",
    "distinct_count": "put the value into the key of a state with a RowCount",
    "distinct_set": "put the value into the key of a state with a RowCount",
    "top_k": "put the item into the key of a state with a RowCount",
}


def check_retraction(fed: FedState) -> None:
    """Raise PipelineError if rows are taken away from a state that cannot subtract them exactly."""
    if not isinstance(fed, PersistentAggregate) or not fed.stream.retracts:
        return
    _check_keys(fed.spec)
    for name, aggregator in fed.spec.measures.items():
        _check_measure(f"state {fed.name!r}, measure {name!r}", aggregator)
    for each in _steps(fed.stream):
        _check_step(fed.name, each)


def check_totals(spec: StateSpec, rejected: Iterable[DeadLetter]) -> None:
    """Raise PipelineError if the share of a group was left out because a total is out of range.

    rejected: the groups of a task that would become dead letters in a state without retraction.
    """
    for letter in rejected:
        if letter.reason.startswith("measure "):
            raise PipelineError(
                f"state {spec.name!r}: {letter.reason.partition(';')[0]}, for {letter.line[:SHOWN]}; the batch is not "
                "committed, because rows that are left out now would be taken away later; give the measure a wider "
                "type or leave such rows out with where(), and run with --reprocess"
            )


def _check_keys(spec: StateSpec) -> None:
    if spec.key and spec.row_count is None:
        raise PipelineError(
            f"state {spec.name!r}: is fed by rows that can be taken away again, and would keep keys with no rows "
            "left; give it a RowCount() measure"
        )
    if spec.ttl is not None:
        raise PipelineError(
            f"state {spec.name!r}: has a ttl of {spec.ttl}, but no row can be taken away from a key that has expired; "
            "leave out the ttl, and delete rows in the table"
        )


def _check_measure(whose: str, aggregator: Aggregator) -> None:
    signed = getattr(aggregator, "signed_partial", None)
    if signed is None:
        way_out = WAYS_OUT.get(aggregator.name, "keep it in a state that is fed only by inserts")
        raise PipelineError(f"{whose}: {type(aggregator).__name__} cannot take a value away again; {way_out}")
    try:
        signed(SIGN)
    except SpecError as error:
        raise PipelineError(f"{whose}: {error}") from error


def _check_step(state: str, step: Stream) -> None:
    if step.cutoff is not None or (step.watermark is not None and step.watermark.drop_late):
        raise PipelineError(
            f"state {state!r}: late tuples are left out, so a row that was in time when it was counted may be too late "
            "to be taken away; leave out drop_late and allowed_lateness"
        )
    if step.scope == "state":
        raise PipelineError(
            f"state {state!r}: when a row is taken away, a state_query gives it what it finds now, not what it found "
            "when the row was counted; put the query before with_old_rows(), which keeps its result"
        )


def _steps(stream: Stream) -> Iterator[Stream]:
    """Yield the streams that a row passes through, back to its source or to the state that emitted it."""
    yield stream
    before = [each for each in stream.inputs if isinstance(each, Stream)]
    if not any(isinstance(each, PersistentAggregate | PartitionPersist) for step in before for each in step.inputs):
        for each in before:
            yield from _steps(each)
