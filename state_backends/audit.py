"""Audit: compare keys chosen at random with what the changelog says they should hold.

Every batch writes a key twice, as a row and as an entry, in one transaction; so where the two differ, one of them was
lost, restored or edited apart from the other. What neither has, as a batch that was never counted, is not found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from state_backends.changelog import Change, Changelog
from state_backends.committed import is_live
from state_backends.errors import SpecError
from state_backends.protocols import BACKENDS
from state_backends.row import Key
from state_backends.spec import StateSpec
from state_backends.table import StateTable, columns

# A batch may commit between the two reads of a key; one that still differs after so many looks is a deviation.
LOOKS = 3

# A table of up to so many rows per key that is asked for is sampled as a whole.
ROWS_PER_KEY = 100


@dataclass(frozen=True)
class Deviation:
    """stored, logged: the value of the row and that of the changelog, stored column to value; None where absent."""

    key: Key
    stored: Any
    logged: Any


@dataclass(frozen=True)
class Audit:
    """keys: how many were compared, as of batch `txid`."""

    txid: int
    keys: int
    deviations: Sequence[Deviation]


def audit(conn: psycopg.Connection, spec: StateSpec, sample: int) -> Audit:
    """Compare at most `sample` keys of the changelog, and as many of the table, each chosen at random.

    conn: in autocommit mode. Rows of a backend outside of the ledger's database are only looked up, so one that the
    changelog never had is not found. Raises SpecError for a state without a changelog.
    """
    if not spec.changelog:
        raise SpecError(f"state {spec.name!r}: keeps no changelog to be compared with; declare changelog=True")
    keys = _chosen(conn, spec, sample)
    txid, found = _differing(conn, spec, keys)
    for _ in range(LOOKS - 1):
        if found:
            txid, found = _differing(conn, spec, [each.key for each in found])
    return Audit(txid, len(keys), found)


def _chosen(conn: psycopg.Connection, spec: StateSpec, sample: int) -> list[Key]:
    if not spec.key:
        return [()]
    table = StateTable(spec)
    tables = [table.changelog, *([table.name] if BACKENDS[spec.backend].capabilities.in_ledger else [])]
    return list(dict.fromkeys(key for name in tables for key in _sampled(conn, name, spec, sample)))


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
        log = Changelog(conn, spec)
        [(now,)] = conn.execute("SELECT now()")
        txid = log.extent().committed
        keys = _settled(conn, spec, keys, txid)
        stored = BACKENDS[spec.backend].committed_values(conn, spec, keys, txid, now)
        logged = [_value(spec, change, now) for change in log.as_of(txid, keys)]
    # As text, in which a NaN equals itself.
    pairs = zip(keys, stored, logged, strict=True)
    return txid, [Deviation(key, has, should) for key, has, should in pairs if repr(has) != repr(should)]


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
