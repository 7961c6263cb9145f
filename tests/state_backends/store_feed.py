"""StoreFeed: a driver of one state outside the ledger's database, and what may happen to either of the two."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
import redis

from tests.state_backends.feed import Rows, arrow
from tidegauge.state_backends import BACKENDS, Batch, BatchLedger, Catalog, StateSpec, state_reader
from tidegauge.state_backends.errors import TidegaugeError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.state_backends.protocols import Backend, BackendSession
from tidegauge.state_backends.reader.reader import LedgerRow, ShownRows, Snapshot
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.steps import run_on_loop

LEDGER = "committed_txid, committed_attempt, committed_batch_id, committed_time, fence, token, epoch"


class StoreFeed:
    """Feeds a state as a driver and its tasks do, step by step. conn: in autocommit mode."""

    def __init__(self, conn: psycopg.Connection, spec: StateSpec, *, spout: str = "opaque") -> None:
        self.conn, self.spec, self.spout = conn, spec, spout
        self.pipeline = f"pipeline_of_{spec.name}"
        Catalog(conn).register_pipeline(self.pipeline, spout=spout)
        self.ledger = BatchLedger(conn, self.pipeline)
        self.ledger.acquire()
        Catalog(conn).register_states(self.pipeline, [spec], {spec.name: ""})
        self.ledger.bind("checkpoint")
        self._catch_up()

    @property
    def backend(self) -> Backend:
        return BACKENDS[self.spec.backend]

    def restart(self) -> None:
        """Let the driver die and another one start."""
        self.ledger.release()
        self.ledger.acquire()
        self._catch_up()

    def begin(self, batch_id: int | None = None) -> tuple[Batch, BackendSession]:
        """Begin a batch, admit it, and revert what an earlier attempt at it wrote."""
        batch = self.ledger.begin(self._next_batch_id() if batch_id is None else batch_id, spout=self.spout)
        assert batch is not None
        session = self.backend.session(self.conn, self.spec, batch)
        session.admit()
        if batch.is_retry:
            session.revert()
        return batch, session

    def write(self, batch: Batch, rows: Rows) -> int:
        """Write what one task writes."""
        session = self.backend.session(self.conn, self.spec, batch)
        with session.writing():
            return session.merge(arrow(rows))

    def commit(self, batch: Batch, keys: int) -> None:
        """Commit in the ledger alone."""
        self.ledger.commit(batch, keys_written={self.spec.name: keys})

    def run(self, rows: Rows, batch_id: int | None = None) -> None:
        """Run one whole batch."""
        batch, session = self.begin(batch_id)
        keys = self.write(batch, rows)
        session.check(keys)
        self.commit(batch, keys)
        session.publish(keys)

    def read(self, *pages: str) -> list[Any]:
        """Return the count of each page as a reader gets it, or its status."""
        answers = read_both_ways(self.conn, self.spec, [(page,) for page in pages]).parsed()
        return [answer["value"]["n"] if answer["status"] == "found" else answer["status"] for answer in answers]

    def finding(self) -> str:
        return findings.recorded_finding(self.conn, self.spec.name)

    def copy_of_ledger(self) -> tuple[Any, ...]:
        row = self.conn.execute(f"SELECT {LEDGER} FROM tidegauge.pipeline WHERE name = %s", [self.pipeline]).fetchone()
        assert row is not None
        return row

    def restore_ledger(self, copy: tuple[Any, ...]) -> None:
        """Let the ledger go back, as the restore of a backup does."""
        where = {"pipeline": self.pipeline, "txid": copy[0], "state": self.spec.name}
        self.ledger.release()
        self.conn.execute(
            f"UPDATE tidegauge.pipeline SET ({LEDGER}) = ({', '.join(['%s'] * len(copy))}), "
            "open_txid = NULL, open_attempt = NULL, open_batch_id = NULL, open_time = NULL WHERE name = %s",
            [*copy, self.pipeline],
        )
        self.conn.execute("DELETE FROM tidegauge.batch WHERE pipeline = %(pipeline)s AND txid > %(txid)s", where)
        if self.spec.changelog:
            self.conn.execute(f"DELETE FROM tidegauge_changelog.{self.spec.name} WHERE txid > %(txid)s", where)
        new_epoch(self.conn, "restored", self.pipeline)
        self.ledger.acquire()

    def _catch_up(self) -> None:
        with findings.recorded(self.conn), self.conn.transaction():
            start = self.ledger.start(self.ledger.lock_committed())
            warning = self.backend.catch_up(self.conn, self.spec, start, is_new=start.txid == 0)
            findings.warn(self.conn, self.spec.name, warning)
            findings.record(self.conn, self.spec.name, "")

    def _next_batch_id(self) -> int:
        row = self.conn.execute(
            "SELECT committed_batch_id + 1 FROM tidegauge.pipeline WHERE name = %s", [self.pipeline]
        ).fetchone()
        assert row is not None
        return int(row[0])


def read_both_ways(conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key]) -> Snapshot:
    """Return what a read in a thread answers. Fail unless one on an event loop has the same answer or error."""
    try:
        found = state_reader(conn, spec).multi_get(keys)
    except TidegaugeError as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            asyncio.run(_read_on_loop(conn, spec, keys))
        raise
    assert asyncio.run(_read_on_loop(conn, spec, keys)) == found
    return found


async def _read_on_loop(conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key]) -> Snapshot:
    reader, rows = state_reader(conn, spec), BACKENDS[spec.backend].loop_rows(spec)

    async def get(step: LedgerRow | ShownRows) -> Any:
        if isinstance(step, LedgerRow):
            return conn.execute(step.statement, step.parameters).fetchone()
        assert rows is not None
        return await step.of(rows)

    try:
        return await run_on_loop(reader.multi_get_steps(keys), get)
    finally:
        if rows is not None:
            await rows.close()


def copy_of(client: redis.Redis, spec: StateSpec) -> dict[bytes, bytes]:
    """Return a copy of what Redis has of a state."""
    return {key: client.dump(key) for key in keys_of(client, spec)}  # type: ignore[misc]


def put_back(client: redis.Redis, spec: StateSpec, copy: dict[bytes, bytes]) -> None:
    """Let what Redis has of a state go back to a copy, as a restored or a promoted server does."""
    if now := keys_of(client, spec):
        client.delete(*now)
    for key, value in copy.items():
        client.restore(key, 0, value)


def keys_of(client: redis.Redis, spec: StateSpec) -> Sequence[bytes]:
    """Return the names of what Redis has of a state; with several partitions, a dot and a bucket follow its name."""
    tag = spec.name if spec.partitions == 1 else f"{spec.name}.*"
    return list(client.scan_iter(f"tidegauge:{{{tag}}}:*", count=1000))
