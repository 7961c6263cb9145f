"""Series of one key: its versions in a range of time as numbers for each measure, as charts draw them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import psycopg

from tidegauge.state_backends import Snapshot
from tidegauge.state_backends.reader.bounds import check_measures
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.entries import checked_key
from tidegauge.webapp.api.lookups import batch_document, read
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.documents import range_document, times_of
from tidegauge.webapp.catalog.series import TimeRange


def key_series(name: str, asked: Mapping[str, Any], span: TimeRange, scope: KeyScope) -> dict[str, Any]:
    """Return the series of one key. asked: what `KeySeriesParameters` read; span: the range that it names.

    A value holds until the next version: the first number is that of the range's beginning, the last one that of its
    end, or of now. Raises ParseError, UnknownStateError, KeyShapeError, OutsideError, SpecError.
    """
    return read(lambda conn: _key_series(conn, name, asked, span, scope))


def _key_series(
    conn: psycopg.Connection, name: str, asked: Mapping[str, Any], span: TimeRange, scope: KeyScope
) -> dict[str, Any]:
    reader = readers.reader(conn, name)
    key = checked_key(reader.spec, asked.get("key", ""), scope)
    measures = check_measures(reader.spec, asked.get("measures"))
    snapshot, columns = series_of(reader, key, measures, span)
    own = {
        "state": name,
        **batch_document(snapshot),
        "isolation": reader.isolation,
        "key": list(key),
    }
    return own | range_document(span) | columns | {"times": times_of(columns["times"])}


def series_of(reader: Reader, key: Key, measures: Sequence[str], span: TimeRange) -> tuple[Snapshot, dict[str, Any]]:
    """Return times, txids, and by name the numbers at these times."""
    snapshot = reader.series(key, since=span.since, until=span.until, step_seconds=span.step_seconds)
    return snapshot, _columns(snapshot.parsed(), measures, span)


def _columns(versions: Sequence[Mapping[str, Any]], measures: Sequence[str], span: TimeRange) -> dict[str, Any]:
    points = [
        (max(datetime.fromisoformat(version["at"]), span.since).timestamp(), _numbers(version["value"], measures))
        for version in versions
    ]
    txids = [version["txid"] for version in versions]
    end = min(span.until, datetime.now(UTC)).timestamp()
    if points and end > points[-1][0]:
        points.append((end, points[-1][1]))
        txids.append(txids[-1])
    names = dict.fromkeys([*measures, *(name for _, numbers in points for name in numbers)])
    shown = {name: [numbers.get(name) for _, numbers in points] for name in names}
    return {"times": [at for at, _ in points], "txids": txids, "series": shown}


def _numbers(value: Any, measures: Sequence[str]) -> dict[str, float]:
    """Return the numbers of a value by measure; those of a measure with members as `measure.member`."""
    found: dict[str, Any] = {}
    for measure in measures:
        number = value.get(measure) if isinstance(value, Mapping) else None
        members = number.items() if isinstance(number, Mapping) else ()
        named = {measure: number} | {f"{measure}.{member}": each for member, each in members}
        found |= {name: each for name, each in named.items() if _is_number(each)}
    return found


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number; JSON has texts for NaN and infinities."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
