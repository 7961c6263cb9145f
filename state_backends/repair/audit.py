"""Audit: compare keys chosen at random with what was counted.

Here by the changelog: every batch writes a key twice, as a row and as an entry, in one transaction; so where the two
differ, one of them was lost, restored or edited apart from the other. What neither has, as a batch that was never
counted, shows only when the source is read again (pipelines/repair/recount.py).
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

# A batch may commit between the two reads of a key; one that still differs after so many looks is a deviation.
LOOKS = 3

# A table of up to so many rows per key that is asked for is sampled as a whole.
ROWS_PER_KEY = 100

# Doubles that are added up in another order differ in their last digits, and in those before them where large numbers
# of both signs cancel out.
RELATIVE, ABSOLUTE = 1e-9, 1e-6


@dataclass(frozen=True)
class Deviation:
    """stored, counted: the value of the row and the one that it should have, stored column to value; None: absent.

    place: where `stored` is, if that is not the row.
    """

    key: Key
    stored: Any
    counted: Any
    place: Place = "row"


@dataclass(frozen=True)
class Audit:
    """keys: how many were compared, as of batch `txid`.

    by: what they were compared with, in words. losses: what was found to be lost besides, in words. remarks: what could
    not be compared.
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

    conn: in autocommit mode. Rows of a backend outside of the ledger's database are only looked up, so one that the
    changelog never had is not found. Raises SpecError for a state without a changelog.
    """
    if not spec.changelog:
        raise SpecError(f"state {spec.name!r}: keeps no changelog to be compared with; declare changelog=True")
    keys = sampled_keys(conn, spec, sample)
    txid, found = _differing(conn, spec, keys)
    for _ in range(LOOKS - 1):
        if found:
            txid, found = _differing(conn, spec, [each.key for each in found])
    return Audit(txid, len(keys), found)


def sampled_keys(conn: psycopg.Connection, spec: StateSpec, sample: int) -> list[Key]:
    """Return at most `sample` keys of the state's table and as many of its changelog, where it has them."""
    if not spec.key:
        return [()]
    table = StateTable(spec)
    tables = [table.changelog] if spec.changelog else []
    tables += [table.name] if BACKENDS[spec.backend].tables is not None else []
    return list(dict.fromkeys(key for name in tables for key in _sampled(conn, name, spec, sample)))


def committed_values(
    conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
) -> dict[Key, Any]:
    """Return what the rows of keys hold as of the committed batch, stored column to value; None where absent.

    A key whose row has lost that value to the open batch is left out: only opaque rows keep it. at: the clock by which
    rows live.
    """
    held = _settled(conn, spec, keys, txid)
    return dict(zip(held, BACKENDS[spec.backend].committed_values(conn, spec, held, txid, at), strict=True))


def logged_values(
    conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
) -> dict[Key, Any]:
    """Return the same from the changelog."""
    changes = Changelog(conn, spec).as_of(txid, keys)
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
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        [(now,)] = conn.execute("SELECT now()")
        txid = Changelog(conn, spec).extent().committed
        stored = committed_values(conn, spec, keys, txid, now)
        logged = logged_values(conn, spec, list(stored), txid, now)
    # As text, in which a NaN equals itself.
    return txid, [Deviation(key, has, logged[key]) for key, has in stored.items() if repr(has) != repr(logged[key])]


def _settled(conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int) -> Sequence[Key]:
    """Return the keys whose rows still have what was committed: a transactional row of an open batch has not."""
    if spec.kind == "opaque":
        return keys
    rows = BACKENDS[spec.backend].rows(conn, spec).multi_get(keys)
    return [key for key, row in zip(keys, rows, strict=True) if row is None or (row.txid or 0) <= txid]


def _value(spec: StateSpec, change: Change | None, now: datetime) -> Any:
    if change is None or not is_live(change.value is None, change.batch_time, spec.ttl, now):
        return None
    return change.value if spec.measures or change.value is None else change.value["value"]


def are_alike(spec: StateSpec, stored: Mapping[str, Any] | None, counted: Mapping[str, Any] | None) -> bool:
    """Return whether two values of a key may be of the same events, folded in another order; None: of no event.

    stored, counted: stored column to value. Compared are the measures of `spec`.
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
    """Return whether two values are equal but for the last digits of doubles, at any depth."""
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
