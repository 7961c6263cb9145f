"""The history of one key, as its changelog or its row has it."""

from collections.abc import Mapping
from typing import Any

import orjson
import psycopg
from rest_framework.exceptions import ParseError

from webapp.api_keys.confinement import Confinement
from webapp.lookup.documentation.lookups import MAX_VERSIONS
from webapp.lookup.entries import parts_of
from webapp.lookup.parameters import key_parts, whole_number
from webapp.lookup.query import read
from webapp.lookup.question import LARGEST_TXID
from webapp.states import specs

DEFAULT_LIMIT = 100


def history(name: str, asked: Mapping[str, str], confined: Confinement) -> dict[str, Any]:
    """Return the versions that a query string asks for.

    Raises ParseError, UnknownStateError, KeyShapeError, OutsideError.
    """
    confined.check_state(name)
    limit = whole_number(asked, "limit", 1, MAX_VERSIONS) or DEFAULT_LIMIT
    before = whole_number(asked, "before", 0, LARGEST_TXID)
    return read(lambda conn: _history(conn, name, key_parts(asked, "key"), limit, before, confined))


def _history(
    conn: psycopg.Connection, name: str, key: list[Any] | str, limit: int, before: int | None, confined: Confinement
) -> dict[str, Any]:
    reader = specs.reader(conn, name)
    if key == "" and reader.spec.key:
        raise ParseError(f"key must be given, as a JSON list of {', '.join(reader.spec.key)}")
    typed = reader.spec.check_key(parts_of(key, reader.spec))
    confined.check_keys(reader.spec, [typed])
    snapshot = reader.history(typed, limit=limit, before=before)
    return {
        "state": name,
        "txid": snapshot.txid,
        "as_of": snapshot.as_of,
        "isolation": reader.isolation,
        "key": list(typed),
        "complete": snapshot.complete,
        "versions": orjson.Fragment(snapshot.results),
    }
