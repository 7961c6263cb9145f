"""ETags: what an answer is told apart by, and which of them a client knows already."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg
from django.http import HttpRequest
from django.utils.http import parse_etags
from rest_framework.request import Request

from state_backends import BACKENDS, Snapshot, StateSpec
from state_backends.committed import isolation
from webapp.api.question import Query
from webapp.states import readers


def digest(*parts: bytes) -> str:
    seal = hashlib.blake2b(digest_size=12)
    for part in parts:
        seal.update(b"%d:" % len(part))
        seal.update(part)
    return seal.hexdigest()


def known(request: Request | HttpRequest) -> list[str]:
    """Return the ETags of `If-None-Match`, weak ones as strong ones, since packing an answer makes its tag weak."""
    asked = request.META.get("HTTP_IF_NONE_MATCH")
    return [tag.removeprefix("W/") for tag in parse_etags(asked)] if asked else []


def is_known(request: Request | HttpRequest, etag: str) -> bool:
    tags = known(request)
    return etag in tags or tags == ["*"]


# ETags of lookups: most change only with the batch, and can be told to hold without asking for a single key.
#
# So it is for a state whose readers see whole batches of one database. The answer then depends on the batch (txid,
# attempt, time), the catalog's row of the state, the question, and the time when the first key found will expire; all
# of them are in the tag. An expired key may be cleaned up between two batches, and is missing from then on; other
# kinds change under an open batch; the past may go out of reach: the tag of such an answer is a digest of its
# results.


# Names of states have no hyphen.
OF_BATCH = '"state-txid-attempt-mark-question-until"'
NEVER = "never"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_question(query: Query) -> str:
    """Return a digest of what is asked, as it is part of a tag."""
    keys = query.keys
    # How long to wait is no part of the answer.
    return digest(orjson.dumps([keys.asked, keys.measures, keys.combine, query.when.as_of]))


def of_answer(spec: StateSpec, made: tuple[Any, ...] | None, query: Query, question: str, snapshot: Snapshot) -> str:
    at = _of_batch(spec.name, snapshot.txid, snapshot.attempt, snapshot.as_of, made)
    if not _changes_with_the_batch_alone(spec, query, snapshot):
        return f'"{at}-{question}{digest(snapshot.results)}"'
    return f'"{at}-{question}-{_until(snapshot.until)}"'


def is_of_batch(tag: str) -> bool:
    """Tell a tag that `holding` can judge from one that is a digest of results."""
    return tag.count("-") == OF_BATCH.count("-")


def holding(conn: psycopg.Connection, name: str, tags: Sequence[str]) -> str | None:
    """Return the first of these tags of one question under which it would be answered now; None: find out."""
    mark = readers.of_batch(conn, name)
    if mark is None:
        return None
    start = f'"{_of_batch(name, mark.txid, mark.attempt, mark.at, mark.made)}-'
    held = (tag for tag in tags if is_of_batch(tag) and tag.startswith(start))
    return next((tag for tag in held if _is_before(mark.clock, tag.strip('"').rpartition("-")[2])), None)


def _changes_with_the_batch_alone(spec: StateSpec, query: Query, snapshot: Snapshot) -> bool:
    if (
        isolation(spec) != "committed"
        or not BACKENDS[spec.backend].capabilities.in_ledger
        or query.when.as_of is not None
    ):
        return False
    # The word may be part of a key, too; the digest is right then as well.
    return spec.ttl is None or not (query.keys.combine or b'"expired"' in snapshot.results)


def _of_batch(name: str, txid: int, attempt: int, at: datetime | None, made: tuple[Any, ...] | None) -> str:
    return f"{name}-{txid}-{attempt}-{digest(repr((at, made)).encode())}"


def _until(until: datetime | None) -> str:
    return NEVER if until is None else str(_microseconds(until))


def _is_before(clock: datetime, until: str) -> bool:
    return until == NEVER or (until.isdecimal() and _microseconds(clock) < int(until))


def _microseconds(at: datetime) -> int:
    past = at - EPOCH
    return (past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds
