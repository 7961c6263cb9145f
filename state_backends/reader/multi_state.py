"""Together: several states of one pipeline, answered at one batch.

    at_one_batch(conn, [Question(reader, keys, measures=None, combine=False), ..], as_of=None) -> [Snapshot, ..]

One Snapshot per question, in their order, all of one txid and one attempt; each is what the reader's `multi_get`, or
its `combine`, answers. conn: any connection to the ledger's database, in a transaction or not; it is left as it was
found.

States in PostgreSQL are one statement, which sees one state of the database: one round trip however many there are. A
state in Redis is read beside it, at the batch published there. If that is not the same one, all are asked again as of
the oldest batch among them, whose time is then the clock for ttl.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import psycopg

from state_backends.backends.postgres.reader import Ask, StateReader
from state_backends.errors import MovedOnError, OutOfReachError, SpecError
from state_backends.reader.reader import Reader, Snapshot
from state_backends.row import Key

# Looks at states whose batches are published faster than they are read.
TRIES = 5


@dataclass(frozen=True)
class StateLookup:
    """What is asked of one state: its keys, or with `combine` all of them folded into one. measures: None means all."""

    reader: Reader
    keys: Sequence[Key]
    measures: Sequence[str] | None = None
    combine: bool = False


def at_one_batch(
    conn: psycopg.Connection, questions: Sequence[StateLookup], *, as_of: int | None = None
) -> list[Snapshot]:
    """Answer every question at one batch, the committed one or, with `as_of`, an earlier one.

    Raises SpecError where states are of different pipelines, naming both; MovedOnError where states in Redis move on so
    fast that no batch is common to all after five looks; and what `multi_get` and `combine` raise.
    """
    asked_for = as_of
    for _ in range(TRIES):
        try:
            answers = _answers(conn, questions, as_of)
        except OutOfReachError:
            if asked_for is not None or as_of is None:
                raise
            as_of = None
            continue
        if len({(answer.txid, answer.attempt) for answer in answers}) <= 1:
            return answers
        as_of = min(answer.txid for answer in answers)
    names = ", ".join(repr(question.reader.spec.name) for question in questions)
    raise MovedOnError(f"states {names}: no batch was common to all of them in {TRIES} looks; ask again")


def _answers(conn: psycopg.Connection, questions: Sequence[StateLookup], as_of: int | None) -> list[Snapshot]:
    # Redis first: what it has published is committed by the time the ledger is read.
    elsewhere = {
        place: _alone(conn, question, as_of)
        for place, question in enumerate(questions)
        if not isinstance(question.reader, StateReader)
    }
    here = [(question.reader, question) for question in questions if isinstance(question.reader, StateReader)]
    answers = iter(_in_one_statement(conn, questions, here, as_of))
    return [elsewhere[place] if place in elsewhere else next(answers) for place in range(len(questions))]


def _alone(conn: psycopg.Connection, question: StateLookup, as_of: int | None) -> Snapshot:
    reader = question.reader.on(conn)
    ask = reader.combine if question.combine else reader.multi_get
    return ask(question.keys, question.measures, as_of=as_of)


def _in_one_statement(
    conn: psycopg.Connection,
    questions: Sequence[StateLookup],
    here: Sequence[tuple[StateReader, StateLookup]],
    as_of: int | None,
) -> list[Snapshot]:
    asks = [reader.ask(each.keys, each.measures, combine=each.combine, as_of=as_of) for reader, each in here]
    names = [question.reader.spec.name for question in questions]
    try:
        row = conn.execute(_statement(asks), [names, *(part for ask in asks for part in ask.parameters)]).fetchone()
    except psycopg.errors.UndefinedTable:
        row = None
    if row is None:
        return [_alone(conn, question, as_of) for _, question in here]
    _check_one_pipeline(dict(row[0] or []), names)
    ends = accumulate((ask.width for ask in asks), initial=1)
    parts = [row[first:last] for first, last in pairwise(ends)]
    return [
        _alone(conn, question, as_of) if part[0] is None else ask.read(part)
        for (_, question), ask, part in zip(here, asks, parts, strict=True)
    ]


def _statement(asks: Sequence[Ask]) -> bytes:
    # OFFSET 0 has each planned for itself, as it would be alone.
    joins = b"".join(b" LEFT JOIN (%b OFFSET 0) q%d ON true" % (ask.statement, n) for n, ask in enumerate(asks))
    shown = b"".join(b", q%d.*" % n for n in range(len(asks)))
    return (
        b"SELECT w.pipelines%b FROM (SELECT array_agg(ARRAY[s.name, s.pipeline]) AS pipelines FROM tidemark.state s "
        b"WHERE s.name = ANY(%%s)) w%b" % (shown, joins)
    )


def _check_one_pipeline(pipelines: dict[str, str], names: Sequence[str]) -> None:
    found = {pipelines[name]: name for name in reversed(names) if name in pipelines}
    if len(found) > 1:
        (one, first), (other, second) = [(name, pipeline) for pipeline, name in reversed(found.items())][:2]
        raise SpecError(
            f"state {one!r} is of pipeline {first!r} and state {other!r} of pipeline {second!r}, whose batches have "
            "nothing to do with each other; ask for states of one pipeline"
        )
