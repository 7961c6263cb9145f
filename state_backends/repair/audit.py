"""Audit: compare randomly chosen keys of a state with what was counted.

This module compares them with the changelog. Every batch writes a key twice in one transaction, as a row and as an
entry. So if the two differ, one of them was lost, restored or edited without the other. Input that is in neither, such
as a batch that was never counted, is found only by reading the source again (pipelines/repair/recount.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import psycopg
from psycopg import sql

from tidegauge.state_backends.changelog import Change, Changelog
from tidegauge.state_backends.committed import is_live
from tidegauge.state_backends.errors import SpecError
from tidegauge.state_backends.protocols import BACKENDS, Aggregator
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec, stored_column
from tidegauge.state_backends.spec.table import StateTable, columns

Place = Literal["row", "changelog"]

# Keys that differ are compared again, because a batch may commit between the two reads. After so many looks that still
# find a difference, it is a deviation.
LOOKS = 3

# A table with at most this many rows per requested key is sampled as a whole.
ROWS_PER_KEY = 100

# Tolerances, because doubles that are added in another order differ in their last digits, and in more digits if large
# numbers of both signs cancel out.
RELATIVE, ABSOLUTE = 1e-9, 1e-6


@dataclass(frozen=True)
class Deviation:
    """A key whose stored value is not the one that was counted.

    stored, counted: the value that it has and the value that it should have, as stored column to value; None: absent.
    place: where `stored` was read.
    """

    key: Key
    stored: Any
    counted: Any
    place: Place = "row"


@dataclass(frozen=True)
class Audit:
    """The result of an audit. keys: how many were compared, as of batch `txid`.

    by: names what they were compared with. losses: descriptions of anything else that is lost. remarks: descriptions of
    what could not be compared.
    """

    txid: int
    keys: int
    deviations: Sequence[Deviation]
    by: str = "the changelog"
    losses: Sequence[str] = ()
    remarks: Sequence[str] = ()

    @property
    def is_exact(self) -> bool:
        return not self.deviations and not self.losses


def audit(conn: psycopg.Connection, spec: StateSpec, sample: int) -> Audit:
    """Compare at most `sample` keys of the changelog, and as many of the table, each chosen at random.

    conn: in autocommit mode. In a backend outside the ledger's database, only rows of the changelog's keys are looked
    up, so a row that the changelog never had is not found. Raises SpecError for a state without a changelog.
    """
    if not spec.changelog:
        raise SpecError(f"state {spec.name!r}: has no changelog to compare with; declare changelog=True")
    keys = sampled_keys(conn, spec, sample)
    txid, found = _differing(conn, spec, keys)
    for _ in range(LOOKS - 1):
        if found:
            txid, found = _differing(conn, spec, [each.key for each in found])
    return Audit(txid, len(keys), found)


def sampled_keys(conn: psycopg.Connection, spec: StateSpec, sample: int) -> list[Key]:
    """Return at most `sample` keys of the state's table and as many of its changelog, if it has them."""
    if not spec.key:
        return [()]
    table = StateTable(spec)
    tables = [table.changelog] if spec.changelog else []
    tables += [table.name] if BACKENDS[spec.backend].tables is not None else []
    return list(dict.fromkeys(key for name in tables for key in _sampled(conn, name, spec, sample)))


def committed_values(
    conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
) -> dict[Key, Any]:
    """Return the values of keys as of the committed batch, as stored column to value; None if a key is absent.

    A key is left out if the open batch has overwritten its value, because only opaque rows keep the previous one.
    at: the time by which a ttl is judged.
    """
    held = _settled(conn, spec, keys, txid)
    return dict(zip(held, BACKENDS[spec.backend].committed_values(conn, spec, held, txid, at), strict=True))


def logged_values(
    conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
) -> dict[Key, Any]:
    """Return the same values from the changelog."""
    changes = Changelog(conn, spec).at_txid(txid, keys)
    return {key: _value(spec, change, at) for key, change in zip(keys, changes, strict=True)}


def _sampled(conn: psycopg.Connection, table: sql.Identifier, spec: StateSpec, sample: int) -> list[Key]:
    [(rows,)] = conn.execute("SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)", [table.as_string()])
    percent = 100.0 if rows <= ROWS_PER_KEY * sample else 100.0 * ROWS_PER_KEY * sample / rows
    statement = sql.SQL(
        "SELECT {key} FROM (SELECT DISTINCT {key} FROM {table} TABLESAMPLE SYSTEM ({percent})) k "
        "ORDER BY random() LIMIT {sample}"
    ).format(key=columns(spec.key), table=table, percent=sql.Literal(percent), sample=sql.Literal(sample))
    return conn.execute(statement).fetchall()


def _differing(conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key]) -> tuple[int, list[Deviation]]:
    with conn.transaction():
        # One snapshot, so that the table and the changelog are read at the same moment.
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        [(now,)] = conn.execute("SELECT now()")
        txid = Changelog(conn, spec).extent().committed
        stored = committed_values(conn, spec, keys, txid, now)
        logged = logged_values(conn, spec, list(stored), txid, now)
    # Compared as text, because a NaN equals itself only as text.
    return txid, [Deviation(key, has, logged[key]) for key, has in stored.items() if repr(has) != repr(logged[key])]


def _settled(conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int) -> Sequence[Key]:
    """Return the keys whose rows still have what was committed, unlike transactional rows that the open batch wrote."""
    if spec.kind == "opaque":
        return keys
    rows = BACKENDS[spec.backend].rows(conn, spec).multi_get(keys)
    return [key for key, row in zip(keys, rows, strict=True) if row is None or (row.txid or 0) <= txid]


def _value(spec: StateSpec, change: Change | None, now: datetime) -> Any:
    if change is None or not is_live(change.value is None, change.batch_time, spec.ttl, now):
        return None
    return change.value if spec.measures or change.value is None else change.value["value"]


def are_alike(spec: StateSpec, stored: Mapping[str, Any] | None, counted: Mapping[str, Any] | None) -> bool:
    """Return whether two values of a key may come from the same events, folded in another order; None: from no event.

    stored, counted: stored column to value. Only the measures of `spec` are compared.
    """
    if stored is None or counted is None:
        return stored is counted
    return all(_measure_alike(name, measure, stored, counted) for name, measure in spec.measures.items())


def _measure_alike(name: str, measure: Aggregator, stored: Mapping[str, Any], counted: Mapping[str, Any]) -> bool:
    columns = {suffix: stored_column(name, suffix) for suffix in measure.columns}
    one, other = ({suffix: side.get(column) for suffix, column in columns.items()} for side in (stored, counted))
    own = getattr(measure, "are_alike", None)
    return bool(own(one, other)) if own else all(are_close(one[suffix], other[suffix]) for suffix in columns)


def are_close(one: Any, other: Any) -> bool:
    """Return whether two values are equal except for the last digits of doubles, at any depth."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_close(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(are_close, one, other))
    if (
        isinstance(one, float)
        and isinstance(other, float)
        and math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    ):
        return True
    return are_same(one, other)


def are_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; a NaN equals itself, at any depth."""
    return bool(one == other) or repr(one) == repr(other)
