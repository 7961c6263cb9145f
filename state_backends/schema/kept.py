"""Kept: the states that a reprocess has replaced, until it is accepted or rolled back.

The old tables are in schemas of their own. The old ledger row is under the pipeline's name with the suffix `@kept`,
with the dead letters and the batch that was open at the swap; the catalog's rows are in the record of the reprocess. A
roll-back restores all of that, so that the source is read from where the old states stopped, an open batch is tried
again, and no input is left out. It makes a new epoch, because txids go back too.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tidegauge.state_backends.errors import RollBackError
from tidegauge.state_backends.ledger.batch_ledger import notify
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.state_backends.ledger.state_lock import state_locks
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema import reprocess
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.definition import from_definition
from tidegauge.state_backends.schema.reprocess import Phase
from tidegauge.state_backends.schema.table_locks import TableLocks
from tidegauge.state_backends.spec.state_spec import StateSpec

# Columns of a catalog row that a roll-back does not restore; the version, because readers notice a change by it.
LEFT = {"name", "pipeline", "version", "created_at"}


def kept_name(pipeline: str) -> str:
    """Return the name under which the ledger row of what was replaced is kept."""
    return f"{pipeline}@kept"


class Kept:
    """What the newest reprocess of a pipeline has replaced. conn: a psycopg connection in autocommit mode."""

    def __init__(self, conn: psycopg.Connection, pipeline: str) -> None:
        self.pipeline = pipeline
        self.name = kept_name(pipeline)
        self._conn = conn

    def until(self) -> datetime | None:
        """Return the time until which the replaced states are kept at least; None if there are none."""
        row = self._conn.execute(
            "SELECT keep_until FROM tidegauge.reprocess WHERE pipeline = %s AND kept IS NOT NULL", [self.pipeline]
        ).fetchone()
        return row[0] if row else None

    def checkpoint_id(self) -> str | None:
        """Return the checkpoint that the replaced states were fed from."""
        row = self._conn.execute("SELECT checkpoint_id FROM tidegauge.pipeline WHERE name = %s", [self.name]).fetchone()
        return row[0] if row else None

    def keep(self, specs: Sequence[StateSpec], span: timedelta) -> None:
        """Keep ledger, dead letters and catalog of the states that `specs` replace; part of the swap's transaction.

        The swap keeps the tables, and calls this before it changes anything else.
        """
        self._conn.execute(
            "UPDATE tidegauge.reprocess SET keep_until = clock_timestamp() + %s, kept = ("
            "SELECT jsonb_object_agg(n.name, to_jsonb(s)) FROM unnest(%s::text[]) n (name) "
            "LEFT JOIN tidegauge.state s ON s.name = n.name) WHERE pipeline = %s AND phase = 'feeding'",
            [span, [spec.name for spec in specs], self.pipeline],
        )
        for statement in KEEP:
            self._conn.execute(statement, {"pipeline": self.pipeline, "kept": self.name})

    def drop(self) -> None:
        """Forget what is kept, if anything is: tables, ledger, dead letters."""
        with self._conn.transaction():
            for spec in self._kept_specs():
                BACKENDS.tables_of(spec).drop_kept(self._conn, spec)
            self._conn.execute("DELETE FROM tidegauge.pipeline WHERE name = %s", [self.name])
            self._conn.execute(
                "UPDATE tidegauge.reprocess SET kept = NULL WHERE pipeline = %s AND kept IS NOT NULL", [self.pipeline]
            )

    def drop_expired(self) -> bool:
        """Forget what is kept if its time is over. Returns whether it was."""
        with self._conn.transaction():
            expired = self._conn.execute(
                "SELECT FROM tidegauge.reprocess WHERE pipeline = %s AND kept IS NOT NULL "
                "AND phase = 'settled' AND keep_until < clock_timestamp() FOR UPDATE SKIP LOCKED",
                [self.pipeline],
            ).fetchone()
            if expired is not None:
                self.drop()
        return expired is not None

    def check(self) -> None:
        """Raise RollBackError if there is nothing to put back, or if the result would not be exact. Changes nothing."""
        record = reprocess.current(self._conn, self.pipeline)
        if record is not None and record.phase == Phase.FEEDING:
            raise RollBackError(
                f"pipeline {self.pipeline!r}: another reprocess has been under way since "
                f"{record.started_at:%Y-%m-%d %H:%M:%S %Z}; abort it first, with --abort-reprocess"
            )
        if self.until() is None:
            raise RollBackError(
                f"pipeline {self.pipeline!r}: no replaced states are kept, so there is nothing to go back to; a "
                "reprocess keeps them for as long as --keep-old says"
            )
        if strangers := self._fed_since():
            raise RollBackError(
                f"pipeline {self.pipeline!r}: state {', '.join(map(repr, strangers))} has been fed since the reprocess "
                "and was not part of it, so its input would be counted twice; give the state a pipeline of its own"
            )

    def roll_back(self) -> None:
        """Put back the replaced states and drop the new ones, in one transaction. The caller holds the pipeline.

        Raises RollBackError, StateBusyError.
        """
        self.check()
        with state_locks(self._conn, self._kept_rows(), "swap"):
            reprocess.in_swap_transaction(self._conn, list(self._kept_rows()), self._roll_back)

    def _roll_back(self, locks: TableLocks) -> None:
        # The ledger's row before the tables, because tasks that write the tables hold it.
        self._conn.execute("UPDATE tidegauge.pipeline SET fence = fence + 1 WHERE name = %s", [self.pipeline])
        locks.take()
        kept = self._kept_rows()
        if not kept:
            raise RollBackError(f"pipeline {self.pipeline!r}: the kept states were just dropped, as their time is over")
        catalog = Catalog(self._conn)
        known = catalog.names(self.pipeline)
        for name, row in kept.items():
            current = catalog.get(name) if name in known else None
            old = None if row is None else from_definition(name, row["definition"], None)
            if spec := old or current:
                BACKENDS.tables_of(spec).swap_kept(self._conn, current, old)
            self._restore_catalog(name, row)
        names = {"pipeline": self.pipeline, "kept": self.name}
        for statement in ROLL_BACK:
            self._conn.execute(statement, names)
        reprocess.enter(self._conn, self.pipeline, Phase.SETTLED, Phase.ROLLING_BACK)
        new_epoch(self._conn, f"the reprocess of pipeline {self.pipeline!r} was rolled back", self.pipeline)
        notify(self._conn, self.pipeline)

    def _restore_catalog(self, name: str, row: dict[str, Any] | None) -> None:
        if row is None:
            self._conn.execute("DELETE FROM tidegauge.state WHERE name = %s", [name])
            return
        columns = sql.SQL(", ").join(map(sql.Identifier, sorted(row.keys() - LEFT)))
        self._conn.execute(
            sql.SQL(
                "UPDATE tidegauge.state SET version = version + 1, ({columns}) = "
                "(SELECT {columns} FROM jsonb_populate_record(NULL::tidegauge.state, %s)) WHERE name = %s"
            ).format(columns=columns),
            [Jsonb(row), name],
        )

    def _kept_rows(self) -> dict[str, dict[str, Any] | None]:
        """Return the catalog's row of each replaced state; None for one that the reprocess has created. Locks them."""
        row = self._conn.execute(
            "SELECT kept::text FROM tidegauge.reprocess WHERE pipeline = %s AND kept IS NOT NULL FOR UPDATE",
            [self.pipeline],
        ).fetchone()
        # As text, because Django's connections do not parse jsonb.
        return json.loads(row[0]) if row else {}

    def _kept_specs(self) -> list[StateSpec]:
        rows = self._kept_rows().items()
        return [from_definition(name, row["definition"], None) for name, row in rows if row is not None]

    def _fed_since(self) -> list[str]:
        """Return the states that batches after the swap have fed and the reprocess did not replace."""
        rows = self._conn.execute(
            "SELECT DISTINCT fed.name FROM tidegauge.pipeline k JOIN tidegauge.batch b ON b.txid > k.committed_txid, "
            "jsonb_object_keys(b.keys_written) fed (name) WHERE k.name = %s AND b.pipeline = %s "
            "AND NOT fed.name = ANY(%s) ORDER BY 1",
            [self.name, self.pipeline, list(self._kept_rows())],
        )
        return [name for (name,) in rows]


def drop_expired_of(conn: psycopg.Connection, state: str) -> bool:
    """Forget what is kept for the pipeline that feeds a state, if its time is over. Returns whether it was."""
    row = conn.execute("SELECT pipeline FROM tidegauge.state WHERE name = %s", [state]).fetchone()
    return row is not None and Kept(conn, row[0]).drop_expired()


# Copies the ledger row with all columns that it has, and moves the open batch with its records.
KEEP = [
    "INSERT INTO tidegauge.pipeline SELECT (jsonb_populate_record(p, "
    "jsonb_build_object('name', %(kept)s::text, 'reprocesses', %(pipeline)s::text))).* "
    "FROM tidegauge.pipeline p WHERE p.name = %(pipeline)s",
    "UPDATE tidegauge.dead_letter SET pipeline = %(kept)s WHERE pipeline = %(pipeline)s",
    "UPDATE tidegauge.first_input SET pipeline = %(kept)s WHERE pipeline = %(pipeline)s",
    "UPDATE tidegauge.batch b SET pipeline = %(kept)s FROM tidegauge.pipeline p "
    "WHERE p.name = %(pipeline)s AND b.pipeline = p.name AND b.txid > p.committed_txid",
    "UPDATE tidegauge.input_file f SET pipeline = %(kept)s FROM tidegauge.pipeline p "
    "WHERE p.name = %(pipeline)s AND f.pipeline = p.name AND f.txid > p.committed_txid",
]

# Records of batches that fed the dropped states are deleted, because their input is read again. The fence is not put
# back, because it only rises.
ROLL_BACK = [
    "DELETE FROM tidegauge.dead_letter WHERE pipeline = %(pipeline)s",
    "UPDATE tidegauge.dead_letter SET pipeline = %(pipeline)s WHERE pipeline = %(kept)s",
    "DELETE FROM tidegauge.first_input WHERE pipeline = %(pipeline)s",
    "UPDATE tidegauge.first_input SET pipeline = %(pipeline)s WHERE pipeline = %(kept)s",
    "DELETE FROM tidegauge.batch b USING tidegauge.pipeline k "
    "WHERE k.name = %(kept)s AND b.pipeline = %(pipeline)s AND b.txid > k.committed_txid",
    "UPDATE tidegauge.batch SET pipeline = %(pipeline)s WHERE pipeline = %(kept)s",
    "DELETE FROM tidegauge.input_file f USING tidegauge.pipeline k "
    "WHERE k.name = %(kept)s AND f.pipeline = %(pipeline)s AND f.txid > k.committed_txid",
    "UPDATE tidegauge.input_file SET pipeline = %(pipeline)s WHERE pipeline = %(kept)s",
    "UPDATE tidegauge.pipeline o SET fence = o.fence + 1, token = '', spout = k.spout, sources = k.sources, "
    "fed_after = k.fed_after, checkpoint_id = k.checkpoint_id, "
    "committed_txid = k.committed_txid, committed_attempt = k.committed_attempt, "
    "committed_batch_id = k.committed_batch_id, committed_time = k.committed_time, open_txid = k.open_txid, "
    "open_attempt = k.open_attempt, open_batch_id = k.open_batch_id, open_time = k.open_time "
    "FROM tidegauge.pipeline k WHERE o.name = %(pipeline)s AND k.name = %(kept)s",
    "DELETE FROM tidegauge.pipeline WHERE name = %(kept)s",
    "UPDATE tidegauge.reprocess SET kept = NULL WHERE pipeline = %(pipeline)s AND kept IS NOT NULL",
]
