"""Looking up a pasted list of keys: one answer a line, in the order pasted, and what cannot be understood beside it."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from state_backends import StateSpec
from state_backends.reader.reader import Reader
from state_backends.row import Key
from webapp.dashboard.charts import StepChart, step_chart
from webapp.dashboard.entries import cells, is_number
from webapp.dashboard.pasted import PastedKey, pasted_keys

# In the order in which they are summed up.
STATUSES = ("found", "missing", "expired", "not understood")


@dataclass(frozen=True)
class Line:
    """pasted: the line. status: found, missing, expired, or not understood. cells: name and value by measure."""

    pasted: PastedKey
    key: list[Any]
    status: str
    cells: list[tuple[str, Any]]


@dataclass(frozen=True)
class Lookup:
    """txid, at: the batch that all answers are of."""

    lines: list[Line]
    txid: int
    at: datetime | None

    @property
    def summary(self) -> list[tuple[str, int]]:
        """How many lines of each status there are, leaving out what there is none of."""
        counts = Counter(line.status for line in self.lines)
        return [(status, counts[status]) for status in STATUSES if counts[status]]


class TooManyKeysError(Exception):
    """More keys are pasted than one lookup may ask for."""

    def __init__(self, keys: int, limit: int) -> None:
        super().__init__(f"{keys:,} keys are over the limit of {limit:,}; look them up in several goes")


def look_up_pasted(reader: Reader, text: str, *, limit: int, as_of: int | None) -> Lookup:
    """Raises TooManyKeysError, OutOfReachError, NotCommittedError."""
    pasted = pasted_keys(text, reader.spec)
    if len(pasted) > limit:
        raise TooManyKeysError(len(pasted), limit)
    snapshot = reader.multi_get([line.key for line in pasted if line.key is not None], as_of=as_of)
    answers = iter(snapshot.parsed())
    lines = [
        Line(line, [], "not understood", []) if line.key is None else _answered(reader.spec, line, next(answers))
        for line in pasted
    ]
    return Lookup(lines, snapshot.txid, snapshot.as_of)


def _answered(spec: StateSpec, line: PastedKey, answer: dict[str, Any]) -> Line:
    return Line(line, answer["key"], answer["status"], cells(spec, answer["value"]))


# What one key was, version by version, and a number of it as steps over time.


PAGE_VERSIONS = 30


@dataclass(frozen=True)
class Version:
    """status: found or removed. at: the time of its batch. cells: name and value by measure."""

    txid: int
    at: datetime
    status: str
    cells: list[tuple[str, Any]]

    def number(self, measure: str) -> float | None:
        value = dict(self.cells).get(measure)
        return value if is_number(value) else None


@dataclass(frozen=True)
class History:
    """versions: newest first. older: `before` of the next page, None on the last one.

    complete: False where older versions are out of reach.
    """

    versions: list[Version]
    older: int | None
    complete: bool

    def chart(self, measure: str) -> StepChart | None:
        return step_chart([(version.at, version.number(measure)) for version in reversed(self.versions)])


def read_key(text: str) -> Any:
    """Return the key that an address names, as JSON has it; None where it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def history(reader: Reader, key: Key, before: int | None) -> History:
    snapshot = reader.history(key, limit=PAGE_VERSIONS + 1, before=before)
    found = [_version(reader.spec, version) for version in snapshot.parsed()]
    shown = found[:PAGE_VERSIONS]
    return History(shown, shown[-1].txid if len(found) > PAGE_VERSIONS else None, snapshot.complete)


def _version(spec: StateSpec, version: dict[str, Any]) -> Version:
    at = datetime.fromisoformat(version["at"])
    return Version(version["txid"], at, version["status"], cells(spec, version["value"]))
