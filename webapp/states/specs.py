"""The specs of states, remembered per process: a lookup costs one query, not a look into the catalog first.

A remembered spec is compared with the catalog at most once a second; a state that gained a measure shows it by then.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import psycopg

from state_backends import Catalog
from state_backends.factory import Reader, state_reader
from webapp.states import marks, redis_states

Answered = TypeVar("Answered")

CHECK_SECONDS = 1.0


@dataclass(frozen=True)
class _Held:
    """mark: what changes in the catalog when the state does. checked_at: on the monotonic clock."""

    reader: Reader
    mark: tuple[Any, ...] | None
    checked_at: float


_held: dict[str, _Held] = {}


def reader(conn: psycopg.Connection, name: str) -> Reader:
    """Return a reader of a state over `conn`, its statements composed once per process. Raises UnknownStateError."""
    return marked_reader(conn, name)[0]


def marked_reader(conn: psycopg.Connection, name: str) -> tuple[Reader, tuple[Any, ...] | None]:
    """Return the same with the mark of the catalog that the reader goes by; the catalog may have moved on since."""
    now = time.monotonic()
    held = _held.get(name)
    if held is None or now - held.checked_at > CHECK_SECONDS:
        held = _held[name] = _checked(conn, name, held, now)
    return held.reader.on(conn), held.mark


def forget() -> None:
    """Look into the catalog again for every state."""
    _held.clear()


def asked_again(question: Callable[[], Answered]) -> Answered:
    """Return the answer to a question, asked once more where a state was made anew since we looked into the catalog."""
    try:
        return question()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        forget()
        return question()


def _checked(conn: psycopg.Connection, name: str, held: _Held | None, now: float) -> _Held:
    mark = marks.of_catalog(conn, name)
    if held is not None and mark == held.mark and mark is not None:
        return replace(held, checked_at=now)
    _held.pop(name, None)
    return _Held(state_reader(conn, Catalog(conn).get(name), redis_states.client), mark, now)
