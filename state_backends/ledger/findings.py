"""Findings: what a comparison of a state's store with the ledger found wrong, as text, and where that is stored.

A finding is stored in the ledger, so that no reader gets the state until a driver that starts has compared again. A
warning stops nothing; it is for people.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tidegauge.state_backends.errors import FindingError, LostBatchesError, RebuildingError, StoreAheadError
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.spec.state_spec import StateSpec


@contextmanager
def recorded(conn: psycopg.Connection) -> Iterator[None]:
    """Record a finding that is raised in the context, and raise it. conn: in autocommit mode, in no transaction."""
    try:
        yield
    except FindingError as error:
        record(conn, error.state, str(error))
        raise


def record(conn: psycopg.Connection, state: str, finding: str) -> None:
    """Record what is wrong with a state; "" clears it."""
    conn.execute(
        "UPDATE tidegauge.state SET finding = %(finding)s WHERE name = %(state)s AND finding <> %(finding)s",
        {"state": state, "finding": finding},
    )


def warn(conn: psycopg.Connection, state: str, warning: str) -> None:
    """Record a warning about a state's store; "" clears it."""
    conn.execute(
        "UPDATE tidegauge.state SET warning = %(warning)s WHERE name = %(state)s AND warning <> %(warning)s",
        {"state": state, "warning": warning},
    )


def recorded_finding(conn: psycopg.Connection, state: str) -> str:
    """Return what is wrong with a state; "" if nothing is."""
    row = conn.execute("SELECT finding FROM tidegauge.state WHERE name = %s", [state]).fetchone()
    return row[0] if row else ""


def behind(spec: StateSpec, published: int, committed: int) -> LostBatchesError:
    """Return the error of a store that is further behind the ledger than a crash can leave it."""
    return LostBatchesError(
        f"state {spec.name!r}: batch {committed} was committed, and {_title(spec)} is at batch {published}: it has "
        f"lost the rest; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def ahead(spec: StateSpec, txid: int, committed: int) -> StoreAheadError:
    """Return the error of a store that has batches which the ledger lacks and which cannot be reverted."""
    return StoreAheadError(
        f"state {spec.name!r}: {_title(spec)} has batch {txid}, and the ledger is at batch {committed}: the ledger was "
        f"restored from an older copy; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def other_attempt(spec: StateSpec, txid: int) -> StoreAheadError:
    """Return the error of a store that has the ledger's batch, but from an attempt that was not committed."""
    return StoreAheadError(
        f"state {spec.name!r}: batch {txid} in {_title(spec)} is of another attempt than the one that the ledger "
        f"committed: one of the two was restored from an older copy; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def lost_keys(spec: StateSpec, txid: int, has: int, wrote: int) -> LostBatchesError:
    """Return the error of a store that no longer has all keys that a committed batch wrote."""
    return LostBatchesError(
        f"state {spec.name!r}: batch {txid} wrote {wrote} keys, and {_title(spec)} has {has} of them: it has lost "
        f"writes that it had acknowledged; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def lost_rows(spec: StateSpec, count: int | None) -> LostBatchesError:
    """Return the error of a store that has dropped rows by itself. count: None if their number is unknown."""
    return LostBatchesError(
        f"state {spec.name!r}: {count or 'some'} rows are gone that {_title(spec)} had stored: it has evicted them, or "
        f"somebody deleted them; {_again(spec)}",
        spec.name,
    )


def rebuilding(spec: StateSpec) -> RebuildingError:
    """Return the error of a state whose rebuild has not ended."""
    return RebuildingError(
        f"state {spec.name!r}: it is being rebuilt, or a rebuild was cut short; wait for it, or run `tidegauge rebuild "
        f"{spec.name} --to {spec.backend}`",
        spec.name,
    )


def _title(spec: StateSpec) -> str:
    return BACKENDS[spec.backend].title


def _again(spec: StateSpec) -> str:
    if spec.changelog:
        return f"run `tidegauge rebuild {spec.name} --to {spec.backend}`"
    return "feed it again under another name, because it has no changelog to be rebuilt from"
