"""Windows: keys of a state with tiles, folded over trailing windows of event time."""

from collections.abc import Mapping
from typing import Any

import orjson
import psycopg

from tidegauge.state_backends import Snapshot
from tidegauge.state_backends.reader.windows import check_tiled
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.groups import most_folded
from tidegauge.webapp.api.lookups import batch_document, batch_of, check_epoch, read_once_committed, typed_keys
from tidegauge.webapp.api.requests import When, when_of
from tidegauge.webapp.catalog import readers


def windows(name: str, asked: Mapping[str, Any], scope: KeyScope) -> dict[str, Any]:
    """Return the windows that a client asks for. asked: what `AskedWindowsSerializer` read.

    Raises UnknownStateError, KeyShapeError, OutsideError, SpecError, RangeTooLargeError, TilesGoneError,
    NotReachedError, NotCommittedError, OutOfReachError, OtherEpochError.
    """
    when, what = when_of(asked), f"state {name!r}"

    def question(conn: psycopg.Connection) -> dict[str, Any]:
        snapshot, document = _windows(conn, name, asked, when, scope)
        check_epoch(what, when, snapshot)
        return document

    return read_once_committed(what, [name], when, scope, question)


def _windows(
    conn: psycopg.Connection, name: str, asked: Mapping[str, Any], when: When, scope: KeyScope
) -> tuple[Snapshot, dict[str, Any]]:
    reader = readers.reader(conn, name)
    scope.prefix_of(reader.spec)  # first, since who may not read a state does not learn whether it has tiles
    check_tiled(reader.spec)
    snapshot, covered = reader.windows(
        typed_keys(reader.spec.untiled, asked["keys"], scope),
        list(asked["windows"].values()),
        asked.get("measures"),
        to=asked.get("to"),
        most_folded=most_folded(reader.spec, asked.get("measures")),
        at_txid=batch_of(conn, name, when),
    )
    return snapshot, {
        "state": name,
        **batch_document(snapshot),
        "isolation": reader.isolation,
        "windows": [
            {"window": text, "from": window.since, "to": window.until, "granularity": window.granularity}
            for text, window in zip(asked["windows"], covered, strict=True)
        ],
        "results": orjson.Fragment(snapshot.results),
    }
