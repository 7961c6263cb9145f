"""Looks up keys: a pasted list of them, and one key with its earlier versions."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.types import shown
from tidegauge.webapp.accounts.permissions import KeyScope
from tidegauge.webapp.api.rendering import parse_json
from tidegauge.webapp.console.dashboard.entries import cells
from tidegauge.webapp.console.dashboard.pasted import PastedKey, pasted_keys

# In the order of the summary.
STATUSES = ("found", "missing", "expired", "invalid")

PAGE_VERSIONS = 30


@dataclass(frozen=True)
class Line:
    """status: found, missing, expired or invalid. cells: name and value of each measure."""

    pasted: PastedKey
    key: list[Any]
    status: str
    cells: list[tuple[str, Any]]


@dataclass(frozen=True)
class Lookup:
    """txid, at: the batch that was read, and its time."""

    lines: list[Line]
    txid: int
    at: datetime | None

    @property
    def summary(self) -> list[tuple[str, int]]:
        """Each status that occurs, with its number of lines."""
        counts = Counter(line.status for line in self.lines)
        return [(status, counts[status]) for status in STATUSES if counts[status]]


class TooManyKeysError(Exception):
    """A pasted list has more keys than one lookup allows."""

    def __init__(self, keys: int, limit: int) -> None:
        super().__init__(f"{keys:,} keys exceed the limit of {limit:,} per lookup; look them up in parts")


@dataclass(frozen=True)
class Version:
    """status: found or removed. at: batch time. cells: name and value of each measure."""

    txid: int
    at: datetime
    status: str
    cells: list[tuple[str, Any]]


@dataclass(frozen=True)
class History:
    """versions: newest first. older: `before` of the next page, None on the last one.

    complete: False if older versions existed and are not available.
    """

    versions: list[Version]
    older: int | None
    complete: bool


def look_up_pasted(reader: Reader, text: str, scope: KeyScope, *, limit: int, at_txid: int | None) -> Lookup:
    """Raises TooManyKeysError, OutsideError, OutOfReachError, NotCommittedError."""
    pasted = pasted_keys(text, reader.spec)
    if len(pasted) > limit:
        raise TooManyKeysError(len(pasted), limit)
    keys = [line.key for line in pasted if line.key is not None]
    scope.check_keys(reader.spec, keys)
    snapshot = reader.multi_get(keys, at_txid=at_txid)
    answers = iter(snapshot.parsed())
    lines = [
        Line(line, [], "invalid", []) if line.key is None else _line(reader.spec, line, next(answers))
        for line in pasted
    ]
    return Lookup(lines, snapshot.txid, snapshot.batch_time)


def read_key(text: str, spec: StateSpec) -> Key:
    """Return the key in an address, a JSON list. Raises KeyShapeError."""
    try:
        parse_json(text)
        # Parsed again by json, because orjson turns whole numbers of more than 64 bits into floats.
        parts = json.loads(text)
    except ValueError:
        parts = None
    if not isinstance(parts, list):
        raise KeyShapeError(f"expected a list of {len(spec.key)} parts as JSON, got {shown(text)}")
    return spec.check_key(parts)


def history(reader: Reader, key: Key, before: int | None) -> History:
    snapshot = reader.history(key, limit=PAGE_VERSIONS + 1, before=before)
    found = [_version(reader.spec, version) for version in snapshot.parsed()]
    shown = found[:PAGE_VERSIONS]
    return History(shown, shown[-1].txid if len(found) > PAGE_VERSIONS else None, snapshot.complete)


def _line(spec: StateSpec, pasted: PastedKey, answer: dict[str, Any]) -> Line:
    return Line(pasted, answer["key"], answer["status"], cells(spec, answer["value"]))


def _version(spec: StateSpec, version: dict[str, Any]) -> Version:
    at = datetime.fromisoformat(version["at"])
    return Version(version["txid"], at, version["status"], cells(spec, version["value"]))
