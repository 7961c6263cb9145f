"""Retraction: aggregates over a changing table, from which the rows that were changed or deleted are taken away.

Every tuple of such a stream has a sign: 1 for a row as it is now, -1 for one as it was before a change. A group's
partial aggregate adds the one and subtracts the other, so an update, a delete and a row that moves to another group are
folds like any other: a replay reverts them, and what batches hold does not matter. Other systems call it a retract
stream or a changelog stream (Apache Flink, "Dynamic Tables": +I, -U, +U, -D).

What cannot be subtracted is refused where it is declared, since a wrong total shows nowhere. A row that a state cannot
take by itself, as its key is null or a value has too many places, is left out both when it is counted and when it is
taken away. A total that is out of range is not so: whether it is depends on the other rows. Leaving out such a group's
share would lose what later batches take away, so the batch fails.
"""

from collections.abc import Iterable, Iterator

from tidegauge.pipelines.declare.stream import FedState, PartitionPersist, PersistentAggregate, Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.source import SIGN
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import Aggregator
from tidegauge.state_backends.spec.state_spec import StateSpec

SHOWN = 200  # characters of a group

WAYS_OUT = {
    "min": "use RetractableMin, which keeps every value",
    "max": "use RetractableMax, which keeps every value",
    "variance": "keep Sum('x', type='numeric'), the same of each(xx='x * x'), and a Count",
    "std_dev": "keep Sum('x', type='numeric'), the same of each(xx='x * x'), and a Count",
    "distinct_count": "put the value into the key of a state with a RowCount",
    "distinct_set": "put the value into the key of a state with a RowCount",
    "top_k": "put the item into the key of a state with a RowCount",
}


def check_retraction(fed: FedState) -> None:
    """Raise PipelineError if rows are taken away from a state that cannot give them back exactly."""
    if not isinstance(fed, PersistentAggregate) or not fed.stream.retracts:
        return
    _check_keys(fed.spec)
    for name, aggregator in fed.spec.measures.items():
        _check_measure(f"state {fed.name!r}, measure {name!r}", aggregator)
    for each in _steps(fed.stream):
        _check_step(fed.name, each)


def check_totals(spec: StateSpec, rejected: Iterable[DeadLetter]) -> None:
    """Raise PipelineError if the share of a group was left out because a total is out of range.

    rejected: the groups of a task that a state without retraction would leave to the dead letters.
    """
    for letter in rejected:
        if letter.reason.startswith("measure "):
            raise PipelineError(
                f"state {spec.name!r}: {letter.reason.partition(';')[0]}, for {letter.line[:SHOWN]}; the batch is not "
                "committed, since rows that are left out now would be taken away later; give the measure a wider type "
                "or leave such rows out by where(), and run with --reprocess"
            )


def _check_keys(spec: StateSpec) -> None:
    if spec.key and spec.row_count is None:
        raise PipelineError(
            f"state {spec.name!r}: is fed by rows that are taken away again, and would keep keys that have none left; "
            "give it a RowCount() measure"
        )
    if spec.ttl is not None:
        raise PipelineError(
            f"state {spec.name!r}: has a ttl of {spec.ttl}, after which its rows would be taken away from nothing; "
            "leave it out, and delete rows in the table"
        )


def _check_measure(whose: str, aggregator: Aggregator) -> None:
    signed = getattr(aggregator, "signed_partial", None)
    if signed is None:
        way_out = WAYS_OUT.get(aggregator.name, "keep it in a state that is fed by inserts alone")
        raise PipelineError(f"{whose}: {type(aggregator).__name__} cannot take a value away again; {way_out}")
    try:
        signed(SIGN)
    except SpecError as error:
        raise PipelineError(f"{whose}: {error}") from error


def _check_step(state: str, step: Stream) -> None:
    if step.cutoff is not None or (step.watermark is not None and step.watermark.drop_late):
        raise PipelineError(
            f"state {state!r}: late tuples are left out, and with them rows that are to be taken away and were in time "
            "when they were counted; leave out drop_late, allowed_lateness and the like"
        )
    if step.scope == "state":
        raise PipelineError(
            f"state {state!r}: a state_query gives a row that is taken away what it finds now, not what it found "
            "when the row was counted; put it before with_old_rows(), which keeps what it found"
        )


def _steps(stream: Stream) -> Iterator[Stream]:
    """Yield the streams that a row passes, back to its source or to the state that it comes out of."""
    yield stream
    before = [each for each in stream.inputs if isinstance(each, Stream)]
    if not any(isinstance(each, PersistentAggregate | PartitionPersist) for step in before for each in step.inputs):
        for each in before:
            yield from _steps(each)
