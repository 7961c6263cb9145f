"""The bulk lookup: what a client may ask, and the answer at one committed batch.

The only query is the reader's own, and PostgreSQL's JSON goes out as it comes in.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from django.conf import settings
from rest_framework.exceptions import ParseError

from state_backends import Snapshot, StateSpec
from webapp.states import specs, stores

MEMBERS = {"keys", "measures"}


@dataclass(frozen=True)
class Query:
    """keys: as the client wrote them. measures: which ones to answer; None means all."""

    keys: list[Any]
    measures: list[str] | None = None

    @classmethod
    def from_body(cls, body: Any) -> "Query":
        """Raises ParseError naming what does not fit."""
        if not isinstance(body, dict):
            raise ParseError('the body must be an object such as {"keys": [["JFK", "AA"]]}')
        unknown = sorted(set(body) - MEMBERS)
        if unknown:
            raise ParseError(f"unknown member {unknown[0]!r}; there are {', '.join(sorted(MEMBERS))}")
        return cls(_keys(body.get("keys")), _measures(body.get("measures")))


@dataclass(frozen=True)
class Answer:
    state: str
    isolation: str
    snapshot: Snapshot

    @property
    def etag(self) -> str:
        """State, txid and attempt; and a digest, as keys expire, and weaker kinds change, between two txids."""
        digest = hashlib.blake2b(self.snapshot.results, digest_size=8).hexdigest()
        return f'"{self.state}-{self.snapshot.txid}-{self.snapshot.attempt}-{digest}"'

    @property
    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "txid": self.snapshot.txid,
            "as_of": self.snapshot.as_of,
            "isolation": self.isolation,
            "results": orjson.Fragment(self.snapshot.results),
        }


def look_up(name: str, query: Query) -> Answer:
    """Raises UnknownStateError, KeyShapeError naming the key's index, SpecError for an unknown measure."""
    try:
        return stores.read(lambda conn: _ask(conn, name, query))
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        # The state was made anew since we looked into the catalog.
        specs.forget()
        return stores.read(lambda conn: _ask(conn, name, query))


def _ask(conn: psycopg.Connection, name: str, query: Query) -> Answer:
    reader = specs.reader(conn, name)
    return Answer(name, reader.isolation, reader.multi_get(_as_tuples(reader.spec, query.keys), query.measures))


def _as_tuples(spec: StateSpec, keys: Sequence[Any]) -> Sequence[Any]:
    """Let a bare value stand for a key of one part."""
    if len(spec.key) != 1:
        return keys
    return [key if isinstance(key, list) else [key] for key in keys]


def _keys(keys: Any) -> list[Any]:
    if not isinstance(keys, list):
        raise ParseError("keys must be a list of keys, each a list of its parts")
    limit = settings.TIDEMARK_LOOKUP_MAX_KEYS
    if len(keys) > limit:
        raise ParseError(f"{len(keys)} keys are over the limit of {limit}; ask for them in several requests")
    return keys


def _measures(measures: Any) -> list[str] | None:
    if measures is None or (isinstance(measures, list) and all(isinstance(measure, str) for measure in measures)):
        return measures
    raise ParseError("measures must be a list of names")
