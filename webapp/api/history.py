"""The history of one key: its versions, newest first, in pages."""

from collections.abc import Mapping
from typing import Any

import orjson
import psycopg

from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.entries import checked_key
from tidegauge.webapp.api.list_cursor import ListQuery
from tidegauge.webapp.api.lookups import batch_document, read
from tidegauge.webapp.catalog import readers


def history(name: str, asked: Mapping[str, Any], scope: KeyScope) -> tuple[dict[str, Any], str | None]:
    """Return a page of versions, from the changelog or the row itself, and the cursor of the next one.

    asked: what `HistoryParameters` read. Raises ParseError, UnknownStateError, KeyShapeError, OutsideError.
    """
    return read(lambda conn: _history(conn, name, asked, scope))


def _history(
    conn: psycopg.Connection, name: str, asked: Mapping[str, Any], scope: KeyScope
) -> tuple[dict[str, Any], str | None]:
    reader = readers.reader(conn, name)
    typed = checked_key(reader.spec, asked.get("key", ""), scope)
    query, limit = ListQuery.read(f"versions of {name} {list(map(str, typed))}", asked), asked["limit"]
    snapshot = reader.history(typed, limit=limit, before=query.before)
    versions = snapshot.parsed()
    # The results are sent as the database wrote them, so none can be cut off. A full page may be the last one.
    cursor = query.after(versions[-1]["txid"]) if len(versions) == limit else None
    return {
        "state": name,
        **batch_document(snapshot),
        "isolation": reader.isolation,
        "key": list(typed),
        "complete": snapshot.complete,
        "versions": orjson.Fragment(snapshot.results),
        "next": cursor,
    }, cursor
