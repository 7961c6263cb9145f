"""A backing map in PostgreSQL: a typed table, rows addressed by arrays of keys, batches merged on the server."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql

from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.backends.postgres.incoming import Incoming, copy_rows
from tidegauge.state_backends.backends.postgres.merge import (
    AS_BEFORE,
    BY_KEY,
    base_sql,
    incoming_sql,
    merge_sql,
    newer_sql,
)
from tidegauge.state_backends.backends.postgres.row_codec import RowCodec
from tidegauge.state_backends.dead_letters.letters import DeadLetter, refused_fold
from tidegauge.state_backends.errors import (
    DuplicateKeyError,
    FoldRangeError,
    KeyShapeError,
    SecondWriterError,
    SpecError,
    StaleBatchError,
)
from tidegauge.state_backends.extras import OptionalModule
from tidegauge.state_backends.schema.install import install
from tidegauge.state_backends.spec.row import Key, Versioned, check_unique, pair, stale
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.table import StateTable, columns, commas

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = OptionalModule("pyarrow")

# Rows per round trip: bounds what is in memory beside the caller's own lists.
CHUNK_KEYS = 10_000
FOLDED_ROWS = 5_000

PUT = sql.Identifier("put")
PREVIOUS_TIME: LiteralString = "CASE WHEN prev_txid IS NOT NULL THEN coalesce({}, now()) END"


class PostgresBackingMap:
    """Rows of one state in its table `tidegauge_state.<name>`.

    conn: an open psycopg connection, whose transactions are the caller's.
    A value is a dict of stored column to value, or any JSON value for a `value="jsonb"` state.
    table: where the rows are, if not in the table that readers look at.
    create: create Tidegauge's own tables and the state's, where they are missing. An existing table is not compared
        with the spec: `Catalog.register_states` does that, and migrates. Without `create` the table must exist.
    """

    def __init__(
        self, conn: psycopg.Connection, spec: StateSpec, table: StateTable | None = None, *, create: bool = False
    ) -> None:
        self.spec = spec
        self.refused: list[DeadLetter] = []  # by the last merge
        self._conn = conn
        self._table = table or StateTable(spec)
        if create:
            install(conn)
            tables.create_missing(conn, self._table)
        self._codec = RowCodec(self._table)
        self._incoming = Incoming(conn, self._table)

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        """Return the stored row of each key, in the order asked; None where a key is absent.

        keys: n tuples, one part per key column in the order of `spec.key`. Repeats are allowed.
        Raises KeyShapeError naming the key's index; ValueShapeError naming the key; psycopg.Error passes through.

        One round trip per 10,000 keys: they travel as one array per column and join the primary key.
        The contract is Trident's IBackingMap.multiGet (apache/storm, trident/state/map/IBackingMap.java).
        """
        typed = self.spec.check_keys(keys)
        found: list[Versioned | None] = [None] * len(typed)
        statement = self._get_sql().as_bytes()
        decode = self._codec.decode
        for first in range(0, len(typed), CHUNK_KEYS):
            arrays = self._table.key_columns(typed[first : first + CHUNK_KEYS])
            for ordinality, *row in self._conn.execute(statement, arrays):
                found[first + ordinality - 1] = decode(row)
        return found

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        """Store rows[i] under keys[i], all or none.

        Raises DuplicateKeyError if a key comes twice, StaleBatchError if a stored row is of a newer batch than its
        replacement, ValueShapeError for a value that JSON cannot hold; psycopg.Error passes through.

        The rows stream through COPY into a temporary table, and from there in key order into the state.
        """
        typed = list(pair(self.spec, keys, rows))
        if not typed:
            return
        names = [*self._table.key, *self._codec.columns]
        with self._conn.transaction():
            self._create(PUT, names)
            copy_rows(self._conn, PUT, names, map(self._codec.encode, typed, rows))
            if self._conn.execute(self._put_sql()).rowcount < len(typed):
                self._refuse_older()
            self._conn.execute(sql.SQL("DROP TABLE {}").format(PUT))

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
            key=columns(names, "t"), row=self._codec.selected(), table=self._table.name, where=where
        )
        with self._conn.cursor() as cursor:
            for row in cursor.stream(statement, [part for _, parts in bounds for part in parts]):
                yield self._table.read_key(row[: len(names)]), self._codec.decode(row[len(names) :])

    def revert(self, txid: int) -> int:
        """Put every row written by batch `txid` back to its previous version; delete those that had none.

        Returns the number of rows. Only opaque rows can go back; other kinds are left alone, and return 0.
        It reads the pages that the batch has written, and those appended since the last vacuum.
        Trident has no such step: a key that a failed attempt touched and its replay lacks is counted twice.
        """
        if not self._table.keeps_previous:
            return 0
        back = commas(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Identifier(f"prev_{name}"))
            for name in self._table.version
        )
        with self._conn.transaction():
            # The index is exact however the planner estimates it: see _create_txid_index in tables.py.
            self._conn.execute("SET LOCAL enable_seqscan = off")
            new = self._conn.execute(
                sql.SQL("DELETE FROM {} WHERE txid = %s AND prev_txid IS NULL").format(self._table.name), [txid]
            ).rowcount
            old = self._conn.execute(
                sql.SQL("UPDATE {} SET {}, txid = prev_txid, prev_txid = NULL WHERE txid = %s").format(
                    self._table.name, back
                ),
                [txid],
            ).rowcount
            self._conn.execute("SET LOCAL enable_seqscan TO DEFAULT")
        return new + old

    def merge(
        self,
        batches: Iterable["pa.RecordBatch"],
        txid: int,
        batch_time: datetime,
        *,
        first_run: bool = False,
        before: Callable[[], Callable[[], None]] | None = None,
        after: Callable[[], object] | None = None,
    ) -> int:
        """Fold partial aggregates into the stored rows; one row per key in `batches`. Returns the number of keys.

        batches: Arrow batches with the key columns and those of `spec.partial_columns`, by name.
        first_run: no run before this one can have written the rows, so that one of this batch is another task's.
        before, after: called before any row is read, and once the rows are merged, in psycopg's pipeline mode, so that
            what they execute travels with the merge's own statements. `before` returns what reads its answers.
        A key whose total leaves the range of its column keeps its row, and is in `refused` instead of the result.
        Runs inside the caller's transaction, once, and leaves the rows in the temporary table `StateTable.incoming`
        until it ends.
        Raises DuplicateKeyError if a key comes twice, KeyShapeError if a part of a key is null, StaleBatchError if a
        newer batch wrote one of the keys, SecondWriterError if another task did; roll back then.

        The rows stream through COPY, written by Arrow's CSV writer. Where SQL folds every measure no Python object is
        made per row; else Python folds, 5,000 rows at a time, on rows that stay locked until the transaction ends.
        Rows that come in key order keep two runs of one task from deadlocking.
        """
        if not self.spec.measures:
            raise SpecError(f"state {self.spec.name!r}: has no measures to merge; use a map's multi_update")
        parameters = {"txid": txid, "newest": txid - first_run, "batch_time": batch_time, "ttl": self.spec.ttl}
        self.refused = []
        with self._conn.pipeline():
            self._incoming.empty()
            answered = before() if before else None
        if answered:
            answered()
        keyed = batches if self.spec.key else map(_with_singleton, batches)
        if self.spec.folds_in_sql:
            received = self._incoming.copy_batches(keyed)
        else:
            folded = (self._fold(chunk, parameters) for chunk in _chunks(keyed))
            received = sum(map(self._incoming.copy_rows, folded)) + len(self.refused)
        applied = self._merge_copied(parameters, after)
        merged = received - len(self.refused)
        if applied < merged and self._table.keeps_txid:
            self._refuse_newer(parameters)
        return merged

    def _merge_copied(self, parameters: dict[str, Any], after: Callable[[], object] | None) -> int:
        try:
            return self._merge_incoming(parameters, after)
        except psycopg.errors.NumericValueOutOfRange:
            if not self.spec.folds_in_sql:
                raise
            self._back_to_copied()
            # The statement does not say which row; Python finds it, by the same folds.
            self._refuse_incoming(parameters)
        except psycopg.errors.UniqueViolation as error:
            self._back_to_copied()
            # If no key comes twice, a run of the same task has inserted one meanwhile, and its row is seen now.
            if self._incoming.has_key_twice():
                raise self._key_twice(parameters) from error
        return self._merge_incoming(parameters, after)

    def _back_to_copied(self) -> None:
        """Return to the savepoint after COPY."""
        self._conn.execute("ROLLBACK TO SAVEPOINT copied")
        # psycopg may take statements as prepared that the server has skipped after the error. It forgets them in a
        # rollback of its own.
        with self._conn.transaction(force_rollback=True):
            pass

    def _key_twice(self, parameters: dict[str, Any]) -> DuplicateKeyError:
        return DuplicateKeyError(
            f"state {self.spec.name!r}: batch {parameters['txid']} carries a key twice; "
            f"combine its rows by {', '.join(self.spec.key) or 'nothing'} first"
        )

    def _refuse_incoming(self, parameters: dict[str, Any]) -> None:
        """Take the keys whose fold leaves the range of its column out of the incoming rows."""
        names, width = list(self.spec.partial_columns), len(self._table.key)
        refused: list[Key] = []
        for row in self._conn.execute(incoming_sql(self._table), parameters):
            key, partial = row[:width], dict(zip(names, row[width:], strict=False))
            if self._folded(key, self._codec.value(row[width + len(names) :]), partial) is None:
                refused.append(key)
        if refused:
            self._conn.execute(
                sql.SQL("DELETE FROM {} i USING {} WHERE {}").format(
                    self._table.incoming, self._table.unnest(), self._table.same_key("k", "i")
                ),
                [list(column) for column in zip(*refused, strict=True)],
            )

    def _folded(self, key: Key, stored: Any, partial: dict[str, Any]) -> dict[str, Any] | None:
        """Return the folded value; None if it is out of range, with a note in `refused`."""
        try:
            return self.spec.fold(stored, partial)
        except FoldRangeError as error:
            self.refused.append(refused_fold(self.spec, key if self.spec.key else (), partial, error))
            return None

    def _merge_incoming(self, parameters: dict[str, Any], after: Callable[[], object] | None) -> int:
        try:
            # psycopg's own context for savepoints would wait for each of its statements.
            with self._conn.pipeline():
                self._conn.execute("SAVEPOINT copied")
                self._conn.execute(BY_KEY)
                merged = self._conn.execute(merge_sql(self._table, in_order=self._incoming.in_order), parameters)
                self._conn.execute(AS_BEFORE)
                self._conn.execute("RELEASE SAVEPOINT copied")
                if after:
                    after()
            return merged.rowcount
        except psycopg.errors.CardinalityViolation as error:
            raise self._key_twice(parameters) from error
        except psycopg.errors.NotNullViolation as error:
            raise KeyShapeError(
                f"state {self.spec.name!r}: batch {parameters['txid']} carries a key whose {error.diag.column_name} is "
                "null; leave such rows out first"
            ) from error

    def _fold(self, chunk: "pa.RecordBatch", parameters: dict[str, Any]) -> list[list[Any]]:
        """Return what COPY takes of the chunk's rows: the key and every stored column, folded into what is stored."""
        parts = [chunk[name].to_pylist() for name in self._table.key]
        bound = parameters | {f"key_{number}": part for number, part in enumerate(parts)}
        stored: list[dict[str, Any] | None] = [None] * chunk.num_rows
        for ordinality, *row in self._conn.execute(self._base_sql, bound):
            stored[ordinality - 1] = self._codec.value(row)
        partials = chunk.select(list(self.spec.partial_columns)).to_pylist()
        keys = list(zip(*parts, strict=True))
        folded = zip(keys, map(self._folded, keys, stored, partials), strict=True)
        return [[*key, *self._codec.written(key, value)] for key, value in folded if value is not None]

    @cached_property
    def _base_sql(self) -> bytes:
        return base_sql(self._table).as_bytes()

    def _create(self, table: sql.Identifier, names: Iterable[str]) -> None:
        self._conn.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                table, columns(names), self._table.name
            )
        )

    def _refuse_newer(self, parameters: dict[str, Any]) -> None:
        newer = self._conn.execute(newer_sql(self._table), parameters).fetchone()
        if newer:
            key, stored = newer
            if stored == parameters["txid"]:
                raise SecondWriterError(
                    f"state {self.spec.name!r}: two tasks of batch {stored} wrote key {key}, which belongs to one of "
                    "them; the batch is tried again, and if that fails too, the key comes in forms that differ for "
                    "Spark and not for the state: make them equal before group_by"
                )
            raise StaleBatchError.behind(parameters["txid"], stored, key, self.spec.name)

    def _refuse_older(self) -> None:
        row = self._conn.execute(
            sql.SQL(
                "SELECT json_build_array({}), n.txid, t.txid FROM {} n JOIN {} t ON {} WHERE t.txid > n.txid LIMIT 1"
            ).format(columns(self.spec.key, "t"), PUT, self._table.name, self._table.same_key("n", "t"))
        ).fetchone()
        assert row is not None
        key, txid, stored = row
        raise stale(self.spec, tuple(key), txid, stored)

    def _get_sql(self) -> sql.Composed:
        return sql.SQL("SELECT k.ordinality, {row} FROM {keys} JOIN {table} t ON {same}").format(
            row=self._codec.selected(),
            keys=self._table.unnest(with_ordinality=True),
            table=self._table.name,
            same=self._table.same_key("k", "t"),
        )

    def _put_sql(self) -> sql.Composed:
        names = [*self._table.key, *self._codec.columns]
        times = {"updated_at": "coalesce({}, now())", "prev_updated_at": PREVIOUS_TIME}
        picked = [sql.SQL(times.get(name, "{}")).format(sql.Identifier(name)) for name in names]
        assigned = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in self._codec.columns]
        never_back = sql.SQL("WHERE t.txid <= excluded.txid") if self._table.keeps_txid else sql.SQL("")
        return sql.SQL(
            "INSERT INTO {table} AS t ({names}) SELECT {picked} FROM {put} ORDER BY {key} "
            "ON CONFLICT ({key}) DO UPDATE SET {assigned} {never_back}"
        ).format(
            table=self._table.name,
            names=columns(names),
            picked=commas(picked),
            put=PUT,
            key=columns(self._table.key),
            assigned=commas(assigned),
            never_back=never_back,
        )

    def _compare(self, names: Sequence[str], operator: LiteralString) -> sql.Composed:
        placeholders = commas([sql.Placeholder()] * len(names))
        return sql.SQL("({}) {} ({})").format(columns(names, "t"), sql.SQL(operator), placeholders)


def _chunks(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    for batch in batches:
        for first in range(0, batch.num_rows, FOLDED_ROWS):
            yield batch.slice(first, FOLDED_ROWS)


def _with_singleton(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    return batch.append_column("singleton", pa.array([True] * batch.num_rows))
