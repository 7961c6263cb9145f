"""Waiting for a batch: a client that wrote something reads it as soon as it is committed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
import psycopg
from rest_framework.exceptions import APIException, ParseError

from state_backends import Snapshot, StateSpec
from state_backends.errors import KeyShapeError
from state_backends.reader.multi_state import StateLookup, at_one_batch
from state_backends.reader.reader import Reader
from webapp.accounts.permissions import KeyScope
from webapp.api import caching
from webapp.api.question import Keys, Queries, Query, When
from webapp.states import readers

# From a commit to its answer there is half of the pause at hand.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, GROWTH = 0.005, 0.1, 1.5


class NotReachedError(APIException):
    """The batch did not come in time: ask again. txid: the committed one."""

    status_code = 503
    wait = 1  # seconds, for Retry-After

    def __init__(self, what: str, when: When, txid: int) -> None:
        super().__init__(
            f"{what}: batch {when.min_txid} was not committed within {when.wait_ms} ms, the newest one is {txid}; "
            "ask again"
        )
        self.members = {"txid": txid, "min_txid": when.min_txid}


def await_batch(what: str, when: When, committed: Callable[[], int]) -> None:
    """Return once `committed` gives the batch that is waited for, or a later one. Raises NotReachedError."""
    if when.min_txid is None:
        return
    deadline, pause = time.monotonic() + when.wait_ms / 1000, FIRST_PAUSE_SECONDS
    while (txid := committed()) < when.min_txid:
        left = deadline - time.monotonic()
        if left <= 0:
            raise NotReachedError(what, when, txid)
        sleep(min(pause, left))
        pause = min(pause * GROWTH, LONGEST_PAUSE_SECONDS)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


# The bulk lookup: keys of one state, answered at one committed batch.
#
# The only query is the reader's own, and PostgreSQL's JSON goes out as it comes in. A poll for an answer that the
# client has already costs less still: see `tags`.


Answered = TypeVar("Answered")


class WrongQueryError(ParseError):
    """One of several queries has a key that does not fit."""

    def __init__(self, query: int, error: KeyShapeError) -> None:
        super().__init__(f"query {query}: {error}")
        self.members = {"query": query, "index": error.index}


@dataclass(frozen=True)
class Answer:
    """What one state answers. combined: whether the results are one, folded."""

    state: str
    isolation: str
    snapshot: Snapshot
    combined: bool
    etag: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The answer without its batch, which several may share."""
        return {"state": self.state, "isolation": self.isolation, **self._results}

    @property
    def batch(self) -> dict[str, Any]:
        return {"txid": self.snapshot.txid, "as_of": self.snapshot.as_of}

    @property
    def _results(self) -> dict[str, Any]:
        results = self.snapshot.results
        # The one result of a fold, without the brackets of the list that it comes in.
        return {"combined": orjson.Fragment(results[1:-1])} if self.combined else {"results": orjson.Fragment(results)}


def look_up(name: str, query: Query, confined: KeyScope, known: Sequence[str] = ()) -> Answer | str:
    """Return the answer; or the ETag, of those the client knows, under which it has the answer already.

    Raises UnknownStateError, KeyShapeError naming the key's index, SpecError for an unknown measure, OutsideError for
    what the API key is not for, NotReachedError, NotCommittedError, OutOfReachError.
    """
    confined.check_state(name)
    wait_for(name, query.when)
    question = caching.of_question(query)
    candidates = [tag for tag in known if question in tag]
    held = read(lambda conn: _holding(conn, name, query, confined, candidates)) if candidates else None
    return held or read(lambda conn: _ask(conn, name, query, confined, question, candidates))


def look_up_together(queries: Queries, confined: KeyScope) -> list[Answer]:
    """Return the answers of several states of one pipeline, at one batch. Raises what look_up does.

    WrongQueryError naming the query that does not fit; SpecError for states of several pipelines.
    """
    names = list(dict.fromkeys(name for name, _ in queries.of_states))
    for name in names:
        confined.check_state(name)
    await_batch(f"states {', '.join(names)}", queries.when, lambda: min(committed(name) for name in names))
    return read(lambda conn: _ask_together(conn, queries, confined))


def read(question: Callable[[psycopg.Connection], Answered]) -> Answered:
    """Ask, and once more where a state was made anew since we looked into the catalog."""
    return readers.asked_again(lambda: readers.read(question))


def wait_for(name: str, when: When) -> None:
    """Wait until a state shows the batch that is waited for. Raises NotReachedError."""
    await_batch(f"state {name!r}", when, lambda: committed(name))


def committed(name: str) -> int:
    """Return the batch that a lookup would be answered at now."""
    return read(lambda conn: readers.reader(conn, name).committed()[0])


def typed_keys(spec: StateSpec, keys: Sequence[Any], confined: KeyScope) -> Sequence[Any]:
    """Let a bare value stand for a key of one part. Raises OutsideError for keys that are not the API key's."""
    # Tuples, for the library sees at a fraction of the cost that they fit.
    if len(spec.key) == 1:
        keys = [tuple(key) if isinstance(key, list) else (key,) for key in keys]
    else:
        keys = [tuple(key) if isinstance(key, list) else key for key in keys]
    if confined.is_unrestricted or not confined.prefix_of(spec):
        return keys
    typed = spec.check_keys(keys)
    confined.check_keys(spec, typed)
    return typed


def _holding(
    conn: psycopg.Connection, name: str, query: Query, confined: KeyScope, candidates: Sequence[str]
) -> str | None:
    if not confined.is_unrestricted:
        typed_keys(readers.reader(conn, name).spec, query.keys.asked, confined)
    return caching.holding(conn, name, candidates)


def _ask(
    conn: psycopg.Connection, name: str, query: Query, confined: KeyScope, question: str, known: Sequence[str]
) -> Answer | str:
    reader, made = readers.marked_reader(conn, name)
    keys = typed_keys(reader.spec, query.keys.asked, confined)
    snapshot = _answered(reader, keys, query.keys, query.when.as_of)
    etag = caching.of_answer(reader.spec, made, query, question, snapshot)
    # A tag of the batch was found not to hold a moment ago: the reader's mark may be as old as the client's.
    if etag in known and not caching.is_of_batch(etag):
        return etag
    return Answer(name, reader.isolation, snapshot, query.keys.combine, etag)


def _ask_together(conn: psycopg.Connection, queries: Queries, confined: KeyScope) -> list[Answer]:
    questions = [_question(conn, index, *query, confined) for index, query in enumerate(queries.of_states)]
    snapshots = at_one_batch(conn, questions, as_of=queries.when.as_of)
    return [
        Answer(question.reader.spec.name, question.reader.isolation, snapshot, question.combine)
        for question, snapshot in zip(questions, snapshots, strict=True)
    ]


def _question(conn: psycopg.Connection, index: int, name: str, keys: Keys, confined: KeyScope) -> StateLookup:
    reader = readers.reader(conn, name)
    try:
        typed = typed_keys(reader.spec, keys.asked, confined)
        checked = reader.spec.check_keys(typed)
    except KeyShapeError as error:
        raise WrongQueryError(index, error) from error
    return StateLookup(reader, checked, keys.measures, keys.combine)


def _answered(reader: Reader, keys: Sequence[Any], asked: Keys, as_of: int | None) -> Snapshot:
    ask = reader.combine if asked.combine else reader.multi_get
    return ask(keys, asked.measures, as_of=as_of)
