"""Looking up a pasted list of keys: one answer a line, in the order pasted, and what cannot be understood beside it."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from state_backends import StateSpec
from state_backends.factory import Reader
from webapp.dashboard.entries import cells
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
