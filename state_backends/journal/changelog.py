"""Changelog: every new version of a state's rows, appended with its batch, for history and reads in the past."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql

from state_backends.spec import StateSpec
from state_backends.table import StateTable, columns, commas
from state_backends.versioned import Key


@dataclass(frozen=True)
class Change:
    """One version of one key. value: stored columns, or None where the batch removed the key."""

    txid: int
    batch_time: datetime
    value: dict[str, Any] | None


class Changelog:
    """The changelog of one state, in `tidemark_changelog.<name>`; the state must have asked for one."""

    def __init__(self, conn: psycopg.Connection, spec: StateSpec) -> None:
        self._conn = conn
        self._table = StateTable(spec)

    def append(self, txid: int) -> int:
        """Append the version that batch `txid` gave each key of the temporary table `incoming`. Returns their number.

        Runs in the transaction that merged them, so that rows and entries land together. A retried task writes its
        entries again instead of twice.
        """
        held = [*self._table.key, *self._table.version, "txid"]
        changed = [*self._table.version]
        statement = sql.SQL(
            "INSERT INTO {log} AS c ({held}) SELECT {rows} FROM {state} t JOIN incoming i ON {same} WHERE t.txid = %s "
            "ON CONFLICT ({key}, txid) DO UPDATE SET {assignments}"
        ).format(
            log=self._table.changelog,
            held=columns(held),
            rows=columns(held, "t"),
            state=self._table.name,
            same=self._table.same_key("i", "t"),
            key=columns(self._table.key),
            assignments=commas(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed),
        )
        return self._conn.execute(statement, [txid]).rowcount

    def revert(self, txid: int) -> int:
        """Forget the entries of batch `txid`. Returns their number."""
        return self._conn.execute(
            sql.SQL("DELETE FROM {} WHERE txid = %s").format(self._table.changelog), [txid]
        ).rowcount

    def history(self, key: Key, limit: int = 100) -> Sequence[Change]:
        """Return the newest `limit` versions of a key, newest first. Entries of an open batch are among them."""
        key = self._table.key_values(self._table.spec.check_key(key))
        where = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in self._table.key)
        rows = self._conn.execute(
            sql.SQL("SELECT txid, updated_at, removed, {} FROM {} WHERE {} ORDER BY txid DESC LIMIT %s").format(
                columns(self._table.values), self._table.changelog, where
            ),
            [*key, limit],
        )
        return [
            Change(txid, at, None if removed else dict(zip(self._table.values, value, strict=True)))
            for txid, at, removed, *value in rows
        ]
