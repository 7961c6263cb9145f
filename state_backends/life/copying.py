"""Copy the settled rows of a state to another store, or under another name in one, and compare what arrived."""

from collections.abc import Iterator
from itertools import islice, zip_longest

import psycopg

from tidegauge.state_backends.errors import LifeError, SpecMismatchError
from tidegauge.state_backends.life.settled import Position, settled_rows
from tidegauge.state_backends.protocols import BACKENDS, IBackingMap
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec

CHUNK_KEYS = 10_000


def copy_state(conn: psycopg.Connection, source: StateSpec, target: StateSpec, at: Position) -> int:
    """Copy the rows of a state. Readers see them after the target backend's `end_copy`. Returns their number.

    conn: in autocommit mode. Safe to call again after a crash; it starts over. The caller keeps both states at rest.
    Raises SpecMismatchError if the target's store has something of that name that is not a copy of this state,
    LifeError if the copied rows differ.
    """
    backend = BACKENDS[target.backend]
    _check_target(conn, source, target, at)
    arriving, copied = backend.begin_copy(conn, target), 0
    remaining = settled_rows(conn, source, at)
    while chunk := list(islice(remaining, CHUNK_KEYS)):
        arriving.multi_put([key for key, _ in chunk], [row for _, row in chunk])
        copied += len(chunk)
    if not _are_equal(conn, source, arriving, at):
        raise LifeError(
            f"state {source.name!r}: the copy in {backend.title} differs from the rows in "
            f"{BACKENDS[source.backend].title}, so nothing was changed; try again, and if it differs again, audit it"
        )
    return copied


def _check_target(conn: psycopg.Connection, source: StateSpec, target: StateSpec, at: Position) -> None:
    """Raise SpecMismatchError unless the name is free, or has only what an interrupted earlier call left there."""
    backend = BACKENDS[target.backend]
    try:
        backend.check_new(conn, target)
    except SpecMismatchError:
        if not backend.is_copying(target) and not _are_equal(conn, source, backend.rows(conn, target), at):
            raise


def _are_equal(conn: psycopg.Connection, source: StateSpec, copy: IBackingMap, at: Position) -> bool:
    pairs = zip_longest(_shown(settled_rows(conn, source, at)), _shown(copy.scan()))
    return all(one == other for one, other in pairs)


def _shown(rows: Iterator[tuple[Key, Versioned]]) -> Iterator[str]:
    """Yield rows as text, because a NaN equals itself only as text."""
    for key, row in rows:
        times = (row.at, row.prev_at if row.prev_txid is not None else None)
        yield repr((key, _plain(row.value), row.txid, _plain(row.prev), row.prev_txid, *map(str, times)))


def _plain(value: object) -> object:
    return sorted(value.items()) if isinstance(value, dict) else value
