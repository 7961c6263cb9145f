"""Multi-state read: several states of one pipeline, answered at one batch.

    at_one_batch(conn, [StateLookup(reader, keys, measures=None, combine=False), ..], at_txid=None) -> [Snapshot, ..]

States in the ledger's database are read by one statement, because a statement sees one snapshot of the database and
takes one round trip however many states there are. A state in another store is read separately, at the batch that is
published there. If that is another batch, all are read again as of the oldest batch among them, at whose time ttl is
evaluated.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

import psycopg

from tidegauge.state_backends.errors import MovedOnError, OutOfReachError, SpecError
from tidegauge.state_backends.reader.reader import Ask, CommittedBatch, Reader, Snapshot
from tidegauge.state_backends.spec.row import Key

Answer = TypeVar("Answer")

# How often to ask if batches are published faster than all states are read.
TRIES = 5


@dataclass(frozen=True)
class StateLookup:
    """A lookup of keys in one state; with `combine` their values are folded into one. measures: None means all."""

    reader: Reader
    keys: Sequence[Key]
    measures: Sequence[str] | None = None
    combine: bool = False


def at_one_batch(
    conn: psycopg.Connection, lookups: Sequence[StateLookup], *, at_txid: int | None = None
) -> list[Snapshot]:
    """Answer every lookup at one batch, the committed one or, with `at_txid`, an earlier one.

    conn: to the ledger's database, in a transaction or not; its state does not change.
    Returns one Snapshot per lookup, in their order, all of one txid and one attempt; each is the answer of the reader's
    `multi_get`, or of its `combine`.
    Raises SpecError if states belong to different pipelines, naming both; MovedOnError if batches are published so fast
    that none is common to all after five attempts; and what `multi_get` and `combine` raise.
    """
    names = [each.reader.spec.name for each in lookups]
    return until_one_batch(lambda txid: _answers(conn, lookups, txid), lambda answer: answer, names, at_txid)


def until_one_batch(
    ask: Callable[[int | None], list[Answer]],
    snapshot_of: Callable[[Answer], Snapshot | CommittedBatch],
    names: Iterable[str],
    at_txid: int | None = None,
) -> list[Answer]:
    """Return answers of one batch. If they are of several, ask again as of the oldest batch among them.

    ask: returns all answers, as of a batch or, for None, of the committed one. names: of the states, for the error.
    Raises MovedOnError as `at_one_batch` does, and what `ask` raises.
    """
    asked_for = at_txid
    for _ in range(TRIES):
        try:
            answers = ask(at_txid)
        except OutOfReachError:
            if asked_for is not None or at_txid is None:
                raise
            # The batch that this function chose is out of reach by now, so begin again with the committed one.
            at_txid = None
            continue
        shown = [snapshot_of(answer) for answer in answers]
        if len({(each.epoch, each.txid, each.attempt) for each in shown}) <= 1:
            return answers
        at_txid = min(each.txid for each in shown)
    states = ", ".join(map(repr, names))
    raise MovedOnError(f"states {states}: no batch was common to all of them in {TRIES} attempts; ask again")


def _answers(conn: psycopg.Connection, lookups: Sequence[StateLookup], at_txid: int | None) -> list[Snapshot]:
    asks = [each.reader.ask(each.keys, each.measures, combine=each.combine, at_txid=at_txid) for each in lookups]
    # Other stores first, because a batch that they have published is committed by the time the ledger is read.
    external = {place: _alone(conn, lookups[place], at_txid) for place, ask in enumerate(asks) if ask is None}
    in_ledger = [(each, ask) for each, ask in zip(lookups, asks, strict=True) if ask is not None]
    answers = iter(_in_one_statement(conn, lookups, in_ledger, at_txid))
    return [external[place] if ask is None else next(answers) for place, ask in enumerate(asks)]


def _alone(conn: psycopg.Connection, lookup: StateLookup, at_txid: int | None) -> Snapshot:
    reader = lookup.reader.on(conn)
    ask = reader.combine if lookup.combine else reader.multi_get
    return ask(lookup.keys, lookup.measures, at_txid=at_txid)


def _in_one_statement(
    conn: psycopg.Connection,
    lookups: Sequence[StateLookup],
    in_ledger: Sequence[tuple[StateLookup, Ask]],
    at_txid: int | None,
) -> list[Snapshot]:
    asks = [ask for _, ask in in_ledger]
    names = [each.reader.spec.name for each in lookups]
    try:
        row = conn.execute(_statement(asks), [names, *(part for ask in asks for part in ask.parameters)]).fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    if row is None:
        # A table does not exist. Ask each reader alone, because the one of the unknown state says so by name.
        return [_alone(conn, each, at_txid) for each, _ in in_ledger]
    _check_one_pipeline(dict(row[0] or []), names)
    ends = accumulate((ask.width for ask in asks), initial=1)
    parts = [row[first:last] for first, last in pairwise(ends)]
    return [
        _alone(conn, each, at_txid) if part[0] is None else ask.read(part)
        for (each, ask), part in zip(in_ledger, parts, strict=True)
    ]


def _statement(asks: Sequence[Ask]) -> bytes:
    # OFFSET 0 keeps the planner from merging the sub-selects, so that each has the plan of a single lookup.
    joins = b"".join(b" LEFT JOIN (%b OFFSET 0) q%d ON true" % (ask.statement, n) for n, ask in enumerate(asks))
    shown = b"".join(b", q%d.*" % n for n in range(len(asks)))
    return (
        b"SELECT w.pipelines%b FROM (SELECT array_agg(ARRAY[s.name, s.pipeline]) AS pipelines FROM tidegauge.state s "
        b"WHERE s.name = ANY(%%s)) w%b" % (shown, joins)
    )


def _check_one_pipeline(pipelines: dict[str, str], names: Sequence[str]) -> None:
    found = {pipelines[name]: name for name in reversed(names) if name in pipelines}
    if len(found) > 1:
        (one, first), (other, second) = [(name, pipeline) for pipeline, name in reversed(found.items())][:2]
        raise SpecError(
            f"state {one!r} is of pipeline {first!r} and state {other!r} of pipeline {second!r}, and two pipelines "
            "have no batch in common; ask for states of one pipeline"
        )
