"""A backing map in PostgreSQL: a typed table, rows addressed by arrays of keys, batches merged on the server."""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql
from psycopg.types.json import Jsonb

from state_backends.backing.keys import check_unique
from state_backends.backing.merge import merge_sql, newer_sql
from state_backends.errors import DuplicateKeyError, KeyShapeError, SpecError, StaleBatchError
from state_backends.spec import StateSpec
from state_backends.table import StateTable, columns, commas, previous
from state_backends.versioned import Key, Versioned

TIMES = ("updated_at", "prev_updated_at")


class PostgresBackingMap:
    """Rows of one state in its table `tidemark_state.<name>`.

    conn: an open psycopg connection, whose transactions are the caller's. The table must exist (see Catalog).
    A value is a dict of stored column to value, or any JSON value for a `value="jsonb"` state.
    """

    def __init__(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        self.spec = spec
        self._conn = conn
        self._table = StateTable(spec)

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        """Return the stored row of each key, in the order asked; None where a key is absent.

        keys: n tuples, one part per key column in the order of `spec.key`. Repeats are allowed.
        Raises KeyShapeError naming the key's index; psycopg.Error passes through.

        One round trip whatever n is: the keys travel as one array per column and join the primary key.
        The contract is Trident's IBackingMap.multiGet (apache/storm, trident/state/map/IBackingMap.java).
        """
        if not keys:
            return []
        typed = [self.spec.check_key(key, index) for index, key in enumerate(keys)]
        statement = sql.SQL(
            "SELECT t.{first} IS NOT NULL, {row} FROM {keys} LEFT JOIN {table} t ON {same} ORDER BY k.ordinality"
        ).format(
            first=sql.Identifier(next(iter(self._table.key))),
            row=self._selected(),
            keys=self._table.unnest(with_ordinality=True),
            table=self._table.name,
            same=self._table.same_key("k", "t"),
        )
        rows = self._conn.execute(statement, self._table.key_columns(typed))
        return [self._versioned(row) if found else None for found, *row in rows]

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned], at: datetime | None = None) -> None:
        """Store rows[i] under keys[i], whatever was there.

        at: the batch time that ttl counts from; None takes the database's now.
        Raises DuplicateKeyError if a key comes twice; psycopg.Error passes through.
        """
        typed = check_unique(self.spec, keys)
        if not typed:
            return
        parameters = [
            [*self._table.key_values(key), *self._stored(row, at)] for key, row in zip(typed, rows, strict=True)
        ]
        with self._conn.cursor() as cursor:
            cursor.executemany(self._put_sql(), parameters)

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Forget the rows of these keys, versions and all; absent keys are no error."""
        typed = check_unique(self.spec, keys)
        if typed:
            self._conn.execute(
                sql.SQL("DELETE FROM {} t USING {} WHERE {}").format(
                    self._table.name, self._table.unnest(), self._table.same_key("k", "t")
                ),
                self._table.key_columns(typed),
            )

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        """Yield (key, row) in key order: from `start` (with it) to `stop` (without it), or under a prefix of parts.

        Rows stream one by one; finish or close the iterator before using the connection again.
        """
        names = list(self._table.key)
        bounds: list[tuple[sql.Composed, Sequence[Any]]] = []
        if prefix:
            bounds.append((self._compare(names[: len(prefix)], "="), self.spec.check_prefix(prefix)))
        if start is not None:
            bounds.append((self._compare(names, ">="), self._table.key_values(self.spec.check_key(start))))
        if stop is not None:
            bounds.append((self._compare(names, "<"), self._table.key_values(self.spec.check_key(stop))))
        where = sql.SQL(" AND ").join([sql.SQL("true"), *(condition for condition, _ in bounds)])
        statement = sql.SQL("SELECT {key}, {row} FROM {table} t WHERE {where} ORDER BY {key}").format(
            key=columns(names, "t"), row=self._selected(), table=self._table.name, where=where
        )
        with self._conn.cursor() as cursor:
            for row in cursor.stream(statement, [part for _, parts in bounds for part in parts]):
                key = row[: len(names)] if self.spec.key else ()
                yield key, self._versioned(row[len(names) :])

    def revert(self, txid: int) -> int:
        """Put every row written by batch `txid` back to its previous version; delete those that had none.

        Returns the number of rows. Only opaque rows can go back; other kinds are left alone, and return 0.
        Trident has no such step: a key that a failed attempt touched and its replay lacks is counted twice.
        """
        if not self._table.keeps_previous:
            return 0
        back = commas(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Identifier(f"prev_{name}"))
            for name in self._table.version
        )
        with self._conn.transaction():
            new = self._conn.execute(
                sql.SQL("DELETE FROM {} WHERE txid = %s AND prev_txid IS NULL").format(self._table.name), [txid]
            ).rowcount
            old = self._conn.execute(
                sql.SQL("UPDATE {} SET {}, txid = prev_txid, prev_txid = NULL WHERE txid = %s").format(
                    self._table.name, back
                ),
                [txid],
            ).rowcount
        return new + old

    def merge(self, batches: Iterable[pa.RecordBatch], txid: int, batch_time: datetime) -> int:
        """Fold partial aggregates into the stored rows; one row per key in `batches`. Returns the number of keys.

        batches: Arrow batches with the key columns and the stored columns of every measure, by name.
        Runs inside the caller's transaction, once, and leaves the rows in the temporary table `incoming` until it ends.
        Raises DuplicateKeyError if a key comes twice, KeyShapeError if a part of a key is null, StaleBatchError if a
        newer batch wrote one of the keys; roll back then.

        The rows stream through COPY, written by Arrow's CSV writer, so no Python object is made per row.
        """
        if not self.spec.measures:
            raise SpecError(f"state {self.spec.name!r}: has no measures to merge; use multi_put")
        received = self._copy(batches)
        parameters = {"txid": txid, "batch_time": batch_time, "ttl": self.spec.ttl}
        try:
            applied = self._conn.execute(merge_sql(self._table), parameters).rowcount
        except psycopg.errors.CardinalityViolation as error:
            raise DuplicateKeyError(
                f"state {self.spec.name!r}: batch {txid} carries a key twice; "
                f"combine its rows by {', '.join(self.spec.key) or 'nothing'} first"
            ) from error
        except psycopg.errors.NotNullViolation as error:
            raise KeyShapeError(
                f"state {self.spec.name!r}: batch {txid} carries a key whose {error.diag.column_name} is null; "
                "leave such rows out first"
            ) from error
        if applied < received and self._table.keeps_txid:
            self._refuse_newer(parameters)
        return received

    def _copy(self, batches: Iterable[pa.RecordBatch]) -> int:
        names = [*self.spec.key, *self._table.values]
        self._conn.execute(
            sql.SQL("CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                columns([*self._table.key, *self._table.values]), self._table.name
            )
        )
        if not self.spec.key:
            self._conn.execute("ALTER TABLE incoming ALTER singleton SET DEFAULT true")
        received = 0
        copy_in = sql.SQL("COPY incoming ({}) FROM STDIN (FORMAT csv)").format(columns(names))
        with self._conn.cursor() as cursor, cursor.copy(copy_in) as copy:
            for batch in batches:
                copy.write(_csv(batch.select(names)))
                received += batch.num_rows
        return received

    def _refuse_newer(self, parameters: dict[str, Any]) -> None:
        newer = self._conn.execute(newer_sql(self._table), parameters).fetchone()
        if newer:
            raise StaleBatchError(
                f"state {self.spec.name!r}: batch {parameters['txid']} is older than stored batch {newer[1]} for key "
                f"{newer[0]}; another runner has moved on, so stop this one"
            )

    def _selected(self) -> sql.Composed:
        # JSON travels as text: connections differ in how they load jsonb (Django's leaves it as text).
        as_text = sql.SQL("::text") if self.spec.value == "jsonb" else sql.SQL("")
        return commas(
            sql.Identifier("t", name) + (as_text if name.endswith("value") else sql.SQL(""))
            for name in self._row_columns()
        )

    def _row_columns(self) -> list[str]:
        names = [*self._table.values, "removed"]
        if self._table.keeps_txid:
            names.append("txid")
        if self._table.keeps_previous:
            names += [*(f"prev_{name}" for name in self._table.values), "prev_removed", "prev_txid"]
        return names

    def _versioned(self, row: Sequence[Any]) -> Versioned:
        held = dict(zip(self._row_columns(), row, strict=True))
        return Versioned(self._value(held, ""), held.get("txid"), self._value(held, "prev_"), held.get("prev_txid"))

    def _value(self, held: dict[str, Any], version: str) -> Any:
        absent = version and held.get("prev_txid") is None
        if absent or held[f"{version}removed"]:
            return None
        if self.spec.measures:
            return {name: held[f"{version}{name}"] for name in self._table.values}
        return json.loads(held[f"{version}value"])

    def _stored(self, row: Versioned, at: datetime | None) -> list[Any]:
        parts = [*self._as_columns(row.value), row.value is None, at]
        if self._table.keeps_txid:
            parts.append(row.txid)
        if self._table.keeps_previous:
            has_previous = row.prev_txid is not None
            parts += [*self._as_columns(row.prev), (row.prev is None) if has_previous else None, at, row.prev_txid]
        return parts

    def _as_columns(self, value: Any) -> list[Any]:
        if value is None:
            return [None] * len(self._table.values)
        return [value[name] for name in self._table.values] if self.spec.measures else [Jsonb(value)]

    def _put_sql(self) -> sql.Composed:
        names = [*self._table.key, *self._table.values, "removed", "updated_at"]
        if self._table.keeps_txid:
            names.append("txid")
        if self._table.keeps_previous:
            names += [*previous(self._table.version), "prev_txid"]
        values = [sql.SQL("coalesce(%s, now())" if name in TIMES else "%s") for name in names]
        changed = [name for name in names if name not in self._table.key and name != "prev_updated_at"]
        assignments: list[sql.Composable] = [
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed
        ]
        if self._table.keeps_previous:
            # A Versioned carries no times: the version before keeps the one that its row has.
            assignments.append(
                sql.SQL(
                    "prev_updated_at = CASE WHEN t.txid = excluded.txid THEN coalesce(t.prev_updated_at, t.updated_at) "
                    "ELSE t.updated_at END"
                )
            )
        return sql.SQL("INSERT INTO {} AS t ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}").format(
            self._table.name, columns(names), commas(values), columns(self._table.key), commas(assignments)
        )

    def _compare(self, names: Sequence[str], operator: LiteralString) -> sql.Composed:
        placeholders = commas([sql.Placeholder()] * len(names))
        return sql.SQL("({}) {} ({})").format(columns(names, "t"), sql.SQL(operator), placeholders)


def _csv(batch: pa.RecordBatch) -> bytes:
    text = io.BytesIO()
    pyarrow.csv.write_csv(batch, text, pyarrow.csv.WriteOptions(include_header=False))
    return text.getvalue()
