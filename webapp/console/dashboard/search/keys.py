"""Searches many states for the keys that a text names, or that begin with it.

Each state reads a range of its primary key, so a search costs a page of a few entries per state, however many rows it
has. A state outside the database is asked only for whole keys, because its store has no order by key.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tidegauge.state_backends import BACKENDS, StateSpec
from tidegauge.state_backends.errors import (
    BackendUnavailable,
    FindingError,
    KeyShapeError,
    MovedOnError,
    UnknownStateError,
)
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.types import KEY_TYPES
from tidegauge.webapp.accounts.permissions import KeyScope, OutsideError
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.console.dashboard.pasted import pasted_prefix

# States per search. Each takes one statement of about a millisecond.
MOST_STATES = 50

# Appended to a text, it sorts after all texts that begin with it, in the order of the primary key.
LAST_CHARACTER = "\U0010ffff"

NOT_READ = (BackendUnavailable, FindingError, MovedOnError, UnknownStateError)


@dataclass(frozen=True)
class FoundKey:
    """key: its parts as in JSON."""

    state: str
    key: list[Any]


@dataclass(frozen=True)
class FoundKeys:
    """looked_in: how many of the states were searched."""

    keys: list[FoundKey]
    looked_in: int
    states: int

    @property
    def is_partial(self) -> bool:
        return self.looked_in < self.states


def find_keys(text: str, specs: Sequence[StateSpec], scope: KeyScope, limit: int) -> FoundKeys:
    """Return keys that begin with a text, which is written like a pasted key; keys that equal it come first.

    If the text begins with the name of a state, only that state is searched.
    """
    name, _, rest = text.partition(" ")
    named = [spec for spec in specs if spec.name == name and rest.strip()]
    asked = rest.strip() if named else text
    keyed = named or [spec for spec in specs if spec.key]
    if not asked:
        return FoundKeys([], 0, 0)
    found = [key for spec in keyed[:MOST_STATES] for key in _keys(spec, asked, scope, limit)]
    found.sort(key=lambda each: ",".join(map(str, each.key)) != asked)
    return FoundKeys(found[:limit], min(len(keyed), MOST_STATES), len(keyed))


def _keys(spec: StateSpec, text: str, scope: KeyScope, limit: int) -> Iterator[FoundKey]:
    # Suppressed, because a text that does not fit this state may fit others, and one failed state must not stop all.
    with suppress(KeyShapeError, OutsideError, *NOT_READ):
        parts = pasted_prefix(text, spec)
        within = scope.check_prefix(spec, _whole(spec, parts))
        found = readers.retry_if_redeclared(lambda: _read(spec, parts, within, limit))
        yield from (FoundKey(spec.name, key) for key in found)


def _whole(spec: StateSpec, parts: Key) -> Key:
    """Return the parts that a key must match exactly; a text at the end may be the beginning of a part."""
    return parts[:-1] if _ends_in_text(spec, parts) else parts


def _ends_in_text(spec: StateSpec, parts: Key) -> bool:
    return bool(parts) and KEY_TYPES[list(spec.key.values())[len(parts) - 1]].python is str


def _read(spec: StateSpec, parts: Key, within: Key, limit: int) -> Iterable[list[Any]]:
    reader = readers.reader(readers.connection(), spec.name)
    if BACKENDS[spec.backend].tables is None:
        return _whole_key(reader, parts, within)
    start, stop = (parts, (*parts[:-1], parts[-1] + LAST_CHARACTER)) if _ends_in_text(spec, parts) else (None, None)
    page = reader.page(prefix=within, start=start, stop=stop, limit=limit, measures=[])
    return [entry["key"] for entry in page.parsed()]


def _whole_key(reader: Reader, parts: Key, within: Key) -> list[list[Any]]:
    if len(parts) < len(reader.spec.key) or parts[: len(within)] != within:
        return []
    return [answer["key"] for answer in reader.multi_get([parts], []).parsed() if answer["status"] == "found"]
