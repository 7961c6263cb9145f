"""Lookups: keys of one or several states, answered at one committed batch, and the ETags of the answers.

PostgreSQL makes the JSON of the results, so a lookup is one query and no work per row here.

Most ETags change only with the batch: one row of the ledger shows whether such a tag is still valid, without reading
any key. This applies to states whose readers see whole batches of one database. The answer then depends on the batch
(epoch, txid, attempt, time), the catalog's row of the state, the request, and the time when the first key found will
expire; the tag contains all of them. Other tags contain a digest of the results: an expired key may be deleted between
two batches, other kinds change while a batch is open, and earlier batches may become unavailable.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import orjson
import psycopg
from rest_framework.exceptions import APIException, ParseError

from tidegauge.state_backends import BACKENDS, Snapshot, StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.reader.multi_state import StateLookup, at_one_batch
from tidegauge.state_backends.reader.pinned import txid_at
from tidegauge.state_backends.reader.reader import CommittedBatch, Reader
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.rendering import digest
from tidegauge.webapp.api.requests import Lookup, When
from tidegauge.webapp.catalog import readers, replicas, waits

# On average a client waits half of the current pause from the commit to its answer.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, GROWTH = 0.005, 0.1, 1.5

BATCH_ETAG = '"state-txid-attempt-version-request-until"'  # a state's name has no hyphen
NEVER = "never"
FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)

Answered = TypeVar("Answered")


class NotReachedError(APIException):
    """The batch was not committed in time. members: txid is the committed one."""

    status_code = 409
    wait = 1  # seconds, for Retry-After

    def __init__(self, what: str, when: When, txid: int) -> None:
        super().__init__(
            f"{what}: batch {when.min_txid} was not committed within {when.wait_ms} ms, the newest one is {txid}; "
            "ask again"
        )
        self.members = {"txid": txid, "min_txid": when.min_txid}


class OtherEpochError(APIException):
    """The batches asked for are of another epoch of the ledger. members: epoch and txid are those of now."""

    status_code = 409

    def __init__(self, what: str, asked: str, epoch: str, txid: int) -> None:
        super().__init__(
            f"{what}: epoch {asked!r} is no longer valid: the ledger was restored and is at batch {txid} of epoch "
            f"{epoch!r}; retry without min_txid, at_txid and epoch, and re-send lost writes"
        )
        self.members = {"epoch": epoch, "txid": txid}


class WrongLookupError(ParseError):
    """One of several lookups has an invalid key."""

    def __init__(self, lookup: int, error: KeyShapeError) -> None:
        super().__init__(f"lookup {lookup}: {error}")
        self.members = {"lookup": lookup, "index": error.index}


class Answer(NamedTuple):
    """What one state answers. combined: whether the results are one, folded."""

    state: str
    isolation: str
    snapshot: Snapshot
    combined: bool
    etag: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The answer without its batch, which several may share."""
        return {"state": self.state, "isolation": self.isolation, **self._feeding, **self._results}

    @property
    def batch(self) -> dict[str, Any]:
        return batch_document(self.snapshot)

    @property
    def _feeding(self) -> dict[str, Any]:
        """What stands still, if anything does."""
        found = readers.feeding_of(self.state)
        not_fed: dict[str, Any] = {}
        if found.last_fed_txid is not None:
            not_fed["last_fed_txid"] = found.last_fed_txid
        if found.measures:
            not_fed["measures_last_fed"] = dict(found.measures)
        return {"fed": False, **not_fed} if not_fed else {}

    @property
    def _results(self) -> dict[str, Any]:
        results = self.snapshot.results
        # A fold is a list of one result; the brackets are cut off.
        return {"combined": orjson.Fragment(results[1:-1])} if self.combined else {"results": orjson.Fragment(results)}


def batch_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return the members by which every answer names its batch."""
    return {"epoch": snapshot.epoch, "txid": snapshot.txid, "batch_time": snapshot.batch_time}


def look_up(lookup: Lookup, when: When, scope: KeyScope, known: Sequence[str] = ()) -> Answer | str:
    """Return the answer; or the ETag, of those that the client knows, under which it has the answer already.

    Raises UnknownStateError, KeyShapeError naming the key's index, SpecError for an unknown measure, OutsideError for
    keys outside the API key's scope, NotReachedError, NotCommittedError, OutOfReachError, OtherEpochError.
    """
    scope.check_state(lookup.state)
    known = etags_of(lookup, when, known)

    def question(conn: psycopg.Connection) -> Answer | str:
        etag = _valid_etag(conn, lookup, scope, known) if known else None
        return etag or _look_up(conn, lookup, when, scope, known)

    return read_once_committed(f"state {lookup.state!r}", [lookup.state], when, scope, question)


def look_up_together(lookups: Sequence[Lookup], when: When, scope: KeyScope) -> list[Answer]:
    """Return the answers of several states of one pipeline, at one batch. Raises what look_up does.

    WrongLookupError naming the lookup that has an invalid key; SpecError for states of several pipelines.
    """
    names = list(dict.fromkeys(lookup.state for lookup in lookups))
    for name in names:
        scope.check_state(name)
    what = f"states {', '.join(names)}"
    return read_once_committed(what, names, when, scope, lambda conn: answer_together(conn, lookups, when, scope))


def await_batch(what: str, names: Sequence[str], when: When, committed: Callable[[], CommittedBatch]) -> None:
    """Return once `committed` gives `min_txid` or a later batch. Raises NotReachedError, OtherEpochError."""
    if when.min_txid is None:
        return
    until, pause = waits.deadline(when.wait_ms / 1000), FIRST_PAUSE_SECONDS
    while (now := committed()).txid < when.min_txid:
        check_epoch(what, when, now)
        left = until - time.monotonic()
        if left <= 0 or waits.leave_to_front(names, when.min_txid, until):
            raise NotReachedError(what, when, now.txid)
        sleep(min(pause, left))
        pause = min(pause * GROWTH, LONGEST_PAUSE_SECONDS)


def check_epoch(what: str, when: When, now: CommittedBatch | Snapshot) -> None:
    if when.epoch is not None and when.epoch != now.epoch:
        raise OtherEpochError(what, when.epoch, now.epoch, now.txid)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def read(question: Callable[[psycopg.Connection], Answered]) -> Answered:
    """Run a read, a second time if a state was created again since its catalog row was read.

    A replica is asked, or the primary where none can answer.
    """
    return readers.retry_if_redeclared(lambda: replicas.read(question))


def read_once_committed(
    what: str, names: Sequence[str], when: When, scope: KeyScope, question: Callable[[psycopg.Connection], Answered]
) -> Answered:
    """Run a read where `min_txid` is committed: on a replica that has replayed it, or on the primary, after waiting."""

    def committed(conn: psycopg.Connection) -> CommittedBatch:
        found = [readers.reader(conn, name) for name in names]
        for reader in found:
            scope.prefix_of(reader.spec)  # first, since who may not read a state does not learn its batch
        return min(reader.committed() for reader in found)

    def on_replica(conn: psycopg.Connection) -> Answered:
        if when.min_txid is not None and committed(conn).txid < when.min_txid:
            raise replicas.BehindError
        return question(conn)

    def on_primary() -> Answered:
        await_batch(what, names, when, lambda: _on_primary(committed))
        return readers.read(question)

    return readers.retry_if_redeclared(lambda: replicas.read(on_replica, on_primary))


def _on_primary(question: Callable[[psycopg.Connection], Answered]) -> Answered:
    return readers.retry_if_redeclared(lambda: readers.read(question))


def typed_keys(spec: StateSpec, keys: Sequence[Any], scope: KeyScope) -> Sequence[Any]:
    """Let a bare value stand for a key of one part. Raises OutsideError for keys outside the API key's scope."""
    if len(spec.key) == 1 and not {list}.issuperset(map(type, keys)):
        keys = [key if isinstance(key, list) else [key] for key in keys]
    if scope.is_unrestricted or not scope.prefix_of(spec):
        return keys
    typed = spec.check_keys(keys)
    scope.check_keys(spec, typed)
    return typed


def _look_up(
    conn: psycopg.Connection, lookup: Lookup, when: When, scope: KeyScope, known: Sequence[str]
) -> Answer | str:
    reader, version = readers.versioned_reader(conn, lookup.state)
    keys = typed_keys(reader.spec, lookup.keys, scope)
    ask = reader.combine if lookup.combine else reader.multi_get
    snapshot = ask(keys, lookup.measures, at_txid=batch_of(conn, lookup.state, when))
    return answer_with(reader, version, snapshot, lookup, when, known)


def answer_with(
    reader: Reader,
    version: tuple[Any, ...] | None,
    snapshot: Snapshot,
    lookup: Lookup,
    when: When,
    known: Sequence[str],
) -> Answer | str:
    """Return what `look_up` does, of what the reader has answered. Raises OtherEpochError."""
    check_epoch(f"state {lookup.state!r}", when, snapshot)
    etag = _etag(reader, version, lookup, when, snapshot)
    # A batch ETag was found invalid a moment ago: the reader's catalog version may be as old as the client's.
    if etag in known and not _is_batch_etag(etag):
        return etag
    return Answer(lookup.state, reader.isolation, snapshot, lookup.combine, etag)


def answer_together(conn: psycopg.Connection, lookups: Sequence[Lookup], when: When, scope: KeyScope) -> list[Answer]:
    """Return what `look_up_together` does, of the batch that is there now."""
    reads = [_state_lookup(conn, index, lookup, scope) for index, lookup in enumerate(lookups)]
    snapshots = at_one_batch(conn, reads, at_txid=batch_of(conn, lookups[0].state, when))
    check_epoch(f"state {lookups[0].state!r}", when, snapshots[0])
    return [
        Answer(lookup.state, read.reader.isolation, snapshot, lookup.combine)
        for lookup, read, snapshot in zip(lookups, reads, snapshots, strict=True)
    ]


def batch_of(conn: psycopg.Connection, state: str, when: When) -> int | None:
    """Return the number of an earlier batch to answer at; None for the committed one."""
    return when.at_txid if when.at_time is None else txid_at(conn, state, when.at_time)


def _state_lookup(conn: psycopg.Connection, index: int, lookup: Lookup, scope: KeyScope) -> StateLookup:
    reader = readers.reader(conn, lookup.state)
    try:
        keys = reader.spec.check_keys(typed_keys(reader.spec, lookup.keys, scope))
    except KeyShapeError as error:
        raise WrongLookupError(index, error) from error
    return StateLookup(reader, keys, lookup.measures, lookup.combine)


# ETags


def etags_of(lookup: Lookup, when: When, known: Sequence[str]) -> list[str]:
    """Return those of the ETags that a client knows that are of this request."""
    if not known:
        return []
    request = _request_digest(lookup, when)
    return [etag for etag in known if request in etag]


def _request_digest(lookup: Lookup, when: When) -> str:
    # How long to wait does not change the answer.
    _, *asked = lookup
    return digest(orjson.dumps([asked, when.at_txid, when.at_time, when.epoch]))


def _etag(reader: Reader, version: tuple[Any, ...] | None, lookup: Lookup, when: When, snapshot: Snapshot) -> str:
    start, request = _batch_part(lookup.state, snapshot, version), _request_digest(lookup, when)
    if not _changes_only_with_the_batch(reader, lookup, when, snapshot):
        return f'"{start}-{request}{digest(snapshot.results)}"'
    return f'"{start}-{request}-{NEVER if snapshot.until is None else _microseconds(snapshot.until)}"'


def _changes_only_with_the_batch(reader: Reader, lookup: Lookup, when: When, snapshot: Snapshot) -> bool:
    in_ledger = BACKENDS[reader.spec.backend].tables is not None
    if reader.isolation != "committed" or not in_ledger or when.is_past:
        return False
    # The word may be part of a key, too; a digest is then correct as well.
    return reader.spec.ttl is None or not (lookup.combine or b'"expired"' in snapshot.results)


def _is_batch_etag(etag: str) -> bool:
    return etag.count("-") == BATCH_ETAG.count("-")


def _valid_etag(conn: psycopg.Connection, lookup: Lookup, scope: KeyScope, known: Sequence[str]) -> str | None:
    """Return the first of these ETags of one request that is still valid; None: the keys have to be read."""
    if not scope.is_unrestricted:
        typed_keys(readers.reader(conn, lookup.state).spec, lookup.keys, scope)
    now = readers.batch_version(conn, lookup.state)
    return None if now is None else still_valid(lookup.state, now, known)


def still_valid(state: str, now: readers.BatchVersion, known: Sequence[str]) -> str | None:
    """Return the first of these ETags of one request that belongs to the batch; None if none does."""
    start = f'"{_batch_part(state, now.batch, now.catalog)}-'
    same_batch = (etag for etag in known if _is_batch_etag(etag) and etag.startswith(start))
    return next((etag for etag in same_batch if _is_before(now.clock, etag.strip('"').rpartition("-")[2])), None)


def _batch_part(name: str, batch: CommittedBatch | Snapshot, version: tuple[Any, ...] | None) -> str:
    return f"{name}-{batch.txid}-{batch.attempt}-{_batch_digest(name, batch.epoch, batch.batch_time, version)}"


@lru_cache(maxsize=1_000)
def _batch_digest(*parts: Any) -> str:
    return digest(repr(parts).encode())


def _is_before(clock: datetime, until: str) -> bool:
    return until == NEVER or (until.isdecimal() and _microseconds(clock) < int(until))


def _microseconds(at: datetime) -> int:
    past = at - FIRST_TIME
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds
