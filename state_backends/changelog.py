"""Changelog: every new version of a state's rows, stored with its txid, for history, reads in the past and rebuilds.

It is in PostgreSQL for every backend. Compaction keeps only the newest entry of each key from before its horizon.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tidegauge.state_backends.committed import ledger_sql
from tidegauge.state_backends.errors import (
    NotCommittedError,
    OutOfReachError,
    SpecError,
    StaleBatchError,
    UnknownStateError,
)
from tidegauge.state_backends.spec.row import Key, Versioned
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns, commas

# The temporary table of entries that are written row by row.
ENTRIES = sql.Identifier("entries")


@dataclass(frozen=True)
class Change:
    """One version of one key.

    value: stored column to value, or None if the batch removed the key. batch_time: timezone-aware.
    """

    txid: int
    batch_time: datetime
    value: dict[str, Any] | None


@dataclass(frozen=True)
class Extent:
    """The batches that a changelog covers: it has the state after each of them, from `oldest` to `committed`.

    ttl, clock: the state's ttl, and the time of the open batch, or now if none is open. A version that has expired at
    that time is expired for every later merge, because batch times do not decrease.
    """

    oldest: int
    committed: int
    ttl: timedelta | None
    clock: datetime


class EntryCodec:
    """Decodes entries of one changelog to Change and encodes rows to entries. columns: the written ones, key first."""

    def __init__(self, table: StateTable) -> None:
        self.columns = [*table.key, *table.version, "txid"]
        self._table = table
        self._values = list(table.values)
        self._json = [name for name, sql_type in table.values.items() if sql_type == "jsonb"]

    def selected(self) -> sql.Composed:
        """Return the columns of entry `c` to select, in the order in which `decode` reads them."""
        # JSON is selected as text: connections differ in how they load jsonb (Django's leaves it as text).
        values = [
            sql.SQL("{}::text" if name in self._json else "{}").format(sql.Identifier("c", name))
            for name in self._values
        ]
        return commas([sql.SQL("c.txid, c.updated_at, c.removed"), *values])

    def decode(self, entry: Sequence[Any]) -> Change:
        txid, at, removed, *stored = entry
        if removed:
            return Change(txid, at, None)
        value = dict(zip(self._values, stored, strict=True))
        for name in self._json:
            if value[name] is not None:
                value[name] = json.loads(value[name])
        return Change(txid, at, value)

    def encode(self, key: Key, row: Versioned, now: datetime) -> list[Any]:
        """Return the entry for the row's current version; a row without a time gets `now`."""
        values = self._stored(row.value)
        return [*self._table.key_values(key), *values, row.value is None, row.at or now, row.txid]

    def _stored(self, value: Any) -> Iterator[Any]:
        for name in self._values:
            part = value[name] if value is not None and self._table.spec.measures else value
            yield Jsonb(part) if name in self._json and part is not None else part


class Changelog:
    """The changelog of one state, in `tidegauge_changelog.<name>`.

    conn: a psycopg connection; the caller manages transactions. table: None for the table that readers see.
    Raises SpecError for a state that is declared without a changelog.
    """

    def __init__(self, conn: psycopg.Connection, spec: StateSpec, table: StateTable | None = None) -> None:
        if not spec.changelog:
            raise SpecError(f"state {spec.name!r}: keeps no changelog; declare it with changelog=True")
        self.spec = spec
        self.conn = conn
        self._table = table or StateTable(spec)
        self._codec = EntryCodec(self._table)

    def append(self, txid: int) -> int:
        """Append the version that batch `txid` wrote for each key of the table's incoming rows.

        Call it in the transaction that merged the rows, so that rows and entries are committed together. A retried task
        replaces its entries. Returns the number of entries.
        """
        rows = sql.SQL("SELECT {} FROM {} t JOIN {} i ON {} WHERE t.txid = %s").format(
            columns(self._codec.columns, "t"), self._table.name, self._table.incoming, self._table.same_key("i", "t")
        )
        return self.conn.execute(self._insert_sql(rows), [txid]).rowcount

    def append_rows(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> int:
        """Append the current version of rows[i] under keys[i] and its txid, all or none. Returns the number of entries.

        keys: n unique keys. A row without a time gets the current time. An entry of the same batch and key is replaced.
        Raises KeyShapeError, and StaleBatchError if a newer batch has an entry for one of the keys, because a stale
        writer must not change history.

        The entries are copied into a temporary table, and from there in key order into the changelog, so that two
        writers cannot deadlock.
        """
        typed = self.spec.check_keys(keys)
        if not typed:
            return 0
        with self.conn.transaction():
            self._copy(typed, rows)
            self._refuse_older()
            entries = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(
                columns(self._codec.columns), ENTRIES, columns(self._table.key)
            )
            appended = self.conn.execute(self._insert_sql(entries)).rowcount
            self.conn.execute(sql.SQL("DROP TABLE {}").format(ENTRIES))
        return appended

    def revert(self, txid: int) -> int:
        """Delete the entries of batch `txid`, whose rows are reverted. Returns the number of entries.

        Only opaque rows can be reverted. Other kinds keep their rows, so their entries stay too, and the result is 0.
        """
        if not self._table.keeps_previous:
            return 0
        return self.conn.execute(
            sql.SQL("DELETE FROM {} WHERE txid = %s").format(self._table.changelog), [txid]
        ).rowcount

    def extent(self) -> Extent:
        """Return which batches the changelog covers. Raises UnknownStateError if the state is not registered."""
        statement = ledger_sql(
            "greatest(s.oldest_txid, s.since_txid), p.committed_txid, tidegauge.ttl_at_hand(s.name), "
            "coalesce(p.open_time, tidegauge.clock())"
        )
        row = self.conn.execute(statement, [self.spec.name]).fetchone()
        if row is None:
            raise UnknownStateError(f"state {self.spec.name!r} is not registered with any pipeline")
        return Extent(*row)

    def check_reach(self, txid: int) -> None:
        """Raise OutOfReachError, naming the oldest batch, or NotCommittedError if `txid` is not covered."""
        extent = self.extent()
        if txid < extent.oldest:
            raise OutOfReachError(self.spec.name, txid, extent.oldest)
        if txid > extent.committed:
            raise NotCommittedError(self.spec.name, txid, extent.committed)

    def history(self, key: Key, limit: int = 100, *, upto: int | None = None) -> Sequence[Change]:
        """Return the newest `limit` versions of a key, newest first.

        upto: the last batch to include; None means the committed one, because later entries may still be reverted.
        Raises KeyShapeError, UnknownStateError.
        """
        parts = self._table.key_values(self.spec.check_key(key))
        last = self.extent().committed if upto is None else upto
        where = sql.SQL(" AND ").join(sql.SQL("c.{} = %s").format(sql.Identifier(name)) for name in self._table.key)
        rows = self.conn.execute(
            sql.SQL("SELECT {} FROM {} c WHERE {} AND c.txid <= %s ORDER BY c.txid DESC LIMIT %s").format(
                self._codec.selected(), self._table.changelog, where
            ),
            [*parts, last, limit],
        )
        return [self._codec.decode(row) for row in rows]

    def at_txid(self, txid: int, keys: Sequence[Key]) -> list[Change | None]:
        """Return the version that each key had after batch `txid`, in the order of `keys`; None if it had none.

        Versions are returned as stored, including expired ones.
        Raises OutOfReachError, naming the oldest batch, NotCommittedError, KeyShapeError, UnknownStateError.
        """
        typed = self.spec.check_keys(keys)
        arrays = self._table.key_columns(typed)
        rows = self.conn.execute(self._at_txid_sql(), [*arrays, txid])
        found = [None if row[0] is None else self._codec.decode(row) for row in rows]
        # Look up first, check second: compaction records its horizon before it deletes entries, so a lookup that missed
        # a deleted entry fails the check.
        self.check_reach(txid)
        return found

    def newest(self, upto: int, *, after: Key | None, limit: int) -> list[tuple[Key, list[Change]]]:
        """Return the next `limit` keys in key order, each with its newest two versions up to batch `upto`.

        after: the last key of the previous page; None starts with the first key. The newest version comes first.
        """
        width = len(self._table.key)
        bound = [] if after is None else self._table.key_values(self.spec.check_key(after))
        found: dict[Key, list[Change]] = {}
        for row in self.conn.execute(self._newest_sql(bool(bound)), [upto, *bound, limit, upto]):
            key = self._table.read_key(row[:width])
            found.setdefault(key, []).append(self._codec.decode(row[width:]))
        return list(found.items())

    def forget_after(self, txid: int) -> int:
        """Delete the entries of all batches after `txid`, the open one's too. Returns the number of entries."""
        return self.conn.execute(
            sql.SQL("DELETE FROM {} WHERE txid > %s").format(self._table.changelog), [txid]
        ).rowcount

    def estimate_keys(self) -> int:
        """Return the planner's estimate of how many keys have entries, because counting them reads the whole log."""
        statement = sql.SQL("EXPLAIN (FORMAT JSON) SELECT DISTINCT {} FROM {}").format(
            columns(self._table.key), self._table.changelog
        )
        row = self.conn.execute(statement).fetchone()
        assert row is not None
        plans = json.loads(row[0]) if isinstance(row[0], str) else row[0]
        return int(plans[0]["Plan"]["Plan Rows"])

    def _insert_sql(self, entries: sql.Composed) -> sql.Composed:
        return sql.SQL(
            "INSERT INTO {log} ({columns}) {entries} ON CONFLICT ({key}, txid) DO UPDATE SET {assignments}"
        ).format(
            log=self._table.changelog,
            columns=columns(self._codec.columns),
            entries=entries,
            key=columns(self._table.key),
            assignments=commas(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in self._table.version
            ),
        )

    def _copy(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        names, now = columns(self._codec.columns), datetime.now(UTC)
        self.conn.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                ENTRIES, names, self._table.changelog
            )
        )
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(ENTRIES, names)
        with self.conn.cursor() as cursor, cursor.copy(statement) as copy:
            for key, row in zip(keys, rows, strict=True):
                copy.write_row(self._codec.encode(key, row, now))

    def _refuse_older(self) -> None:
        newer = self.conn.execute(
            sql.SQL(
                "SELECT ARRAY[{}]::text[], n.txid, c.txid FROM {} n JOIN {} c ON {} WHERE c.txid > n.txid LIMIT 1"
            ).format(
                commas(sql.SQL("n.{}::text").format(sql.Identifier(name)) for name in self.spec.key),
                ENTRIES,
                self._table.changelog,
                self._table.same_key("n", "c"),
            )
        ).fetchone()
        if newer:
            key, txid, stored = newer
            raise StaleBatchError.behind(txid, stored, repr(tuple(key)), self.spec.name)

    def _at_txid_sql(self) -> sql.Composed:
        return sql.SQL(
            "SELECT v.* FROM {keys} LEFT JOIN LATERAL (SELECT {entry} FROM {log} c WHERE {same} AND c.txid <= %s "
            "ORDER BY c.txid DESC LIMIT 1) v ON true ORDER BY k.ordinality"
        ).format(
            keys=self._table.unnest(with_ordinality=True),
            entry=self._codec.selected(),
            log=self._table.changelog,
            same=self._table.same_key("k", "c"),
        )

    def _newest_sql(self, onward: bool) -> sql.Composed:
        key = columns(self._table.key)
        behind = commas([sql.Placeholder()] * len(self._table.key))
        return sql.SQL(
            "SELECT {keys}, v.* FROM (SELECT DISTINCT {key} FROM {log} WHERE txid <= %s {onward} ORDER BY {key} "
            "LIMIT %s) k CROSS JOIN LATERAL (SELECT {entry} FROM {log} c WHERE {same} AND c.txid <= %s "
            "ORDER BY c.txid DESC LIMIT 2) v ORDER BY {keys}, v.txid DESC"
        ).format(
            keys=columns(self._table.key, "k"),
            key=key,
            log=self._table.changelog,
            onward=sql.SQL("AND ({}) > ({})").format(key, behind) if onward else sql.SQL(""),
            entry=self._codec.selected(),
            same=self._table.same_key("k", "c"),
        )
