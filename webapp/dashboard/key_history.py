"""What one key was, version by version, and a number of it as steps over time."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from state_backends import StateSpec
from state_backends.factory import Reader
from state_backends.row import Key
from webapp.dashboard.charts import StepChart, step_chart
from webapp.dashboard.entries import cells, is_number

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
