"""Findings: what a comparison of a state's store with the ledger found wrong, in words, and where that is kept.

A finding is kept in the ledger, so that nobody is served the state meanwhile; a driver that starts compares again. A
warning stops nothing and is for people.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tidegauge.state_backends.errors import FindingError, LostBatchesError, RebuildingError, StoreAheadError
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.spec.state_spec import StateSpec


@contextmanager
def recorded(conn: psycopg.Connection) -> Iterator[None]:
    """Record a finding that is raised within, and raise it. conn: in autocommit mode, in no transaction."""
    try:
        yield
    except FindingError as error:
        record(conn, error.state, str(error))
        raise


def record(conn: psycopg.Connection, state: str, finding: str) -> None:
    """Record what is wrong with a state; "" takes it back."""
    conn.execute(
        "UPDATE tidegauge.state SET finding = %(finding)s WHERE name = %(state)s AND finding <> %(finding)s",
        {"state": state, "finding": finding},
    )


def warn(conn: psycopg.Connection, state: str, warning: str) -> None:
    """Record what people should know of a state's store; "" takes it back."""
    conn.execute(
        "UPDATE tidegauge.state SET warning = %(warning)s WHERE name = %(state)s AND warning <> %(warning)s",
        {"state": state, "warning": warning},
    )


def recorded_finding(conn: psycopg.Connection, state: str) -> str:
    """Return what is wrong with a state, "" for nothing."""
    row = conn.execute("SELECT finding FROM tidegauge.state WHERE name = %s", [state]).fetchone()
    return row[0] if row else ""


def behind(spec: StateSpec, published: int, committed: int) -> LostBatchesError:
    """Return the error of a store that is further behind the ledger than a crash leaves it."""
    return LostBatchesError(
        f"state {spec.name!r}: batch {committed} was committed, and {_title(spec)} is at batch {published}: it has "
        f"lost the rest; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def ahead(spec: StateSpec, txid: int, committed: int) -> StoreAheadError:
    """Return the error of a store with batches that the ledger does not have, and that cannot be reverted."""
    return StoreAheadError(
        f"state {spec.name!r}: {_title(spec)} has batch {txid}, and the ledger is at batch {committed}: the ledger was "
        f"restored from an older copy; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def other_attempt(spec: StateSpec, txid: int) -> StoreAheadError:
    """Return the error of a store whose batch of that number is not the one that the ledger committed."""
    return StoreAheadError(
        f"state {spec.name!r}: batch {txid} in {_title(spec)} is of another attempt than the one that the ledger "
        f"committed: one of the two was restored from an older copy; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def lost_keys(spec: StateSpec, txid: int, has: int, wrote: int) -> LostBatchesError:
    """Return the error of a committed batch of which a store has other keys than it wrote."""
    return LostBatchesError(
        f"state {spec.name!r}: batch {txid} wrote {wrote} keys, and {_title(spec)} has {has} of it: it has lost "
        f"writes that it had acknowledged; restore its newest copy, or {_again(spec)}",
        spec.name,
    )


def lost_rows(spec: StateSpec, count: int | None) -> LostBatchesError:
    """Return the error of a store that has dropped rows by itself. count: None where some are known to be gone."""
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
    return "feed it again under another name, as it keeps no changelog to be rebuilt from"
