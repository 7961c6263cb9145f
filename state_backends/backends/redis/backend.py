"""The Redis backend: rows in a Redis beside the ledger, merged by scripts on its server."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from tidegauge.state_backends.backends.comparison import ledger_side
from tidegauge.state_backends.backends.external import ExternalBackend
from tidegauge.state_backends.backends.external_session import ExternalSession
from tidegauge.state_backends.backends.redis.rows import RedisBackingMap
from tidegauge.state_backends.backends.redis.upkeep import RedisUpkeep
from tidegauge.state_backends.errors import MovedOnError
from tidegauge.state_backends.extras import naming_the_extra
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.protocols import LoopRows, StateArchive
from tidegauge.state_backends.reader.scanned import Published
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

if TYPE_CHECKING:
    import pyarrow as pa
    import redis
    from redis.cluster import RedisCluster


class RedisBackend(ExternalBackend):
    """See Backend. client.py reads the address of the Redis from the environment."""

    title = "Redis"
    has_partitions = True

    def check(self) -> None:
        self._client()

    def guarded(self, spec: StateSpec) -> RedisBackingMap:
        return RedisBackingMap(self._client(), spec)

    def upkeep(self, spec: StateSpec) -> RedisUpkeep:
        return RedisUpkeep(self._client(), spec)

    def loop_rows(self, spec: StateSpec) -> LoopRows:
        with naming_the_extra():
            from tidegauge.state_backends.backends.redis.loop_rows import RedisLoopRows

        return RedisLoopRows(spec)

    @property
    def archive(self) -> "StateArchive":  # type: ignore[override]
        with naming_the_extra():
            from tidegauge.state_backends.backends.redis.archive import RedisArchive

        return RedisArchive(self._client())

    def stored_name(self, spec: StateSpec) -> str:
        tag = spec.name if spec.partitions == 1 else f"{spec.name}.0"
        return f"keys of that name, tidegauge:{{{tag}}}:*,"

    def split_keys(self, conn: psycopg.Connection, spec: StateSpec, parts: int) -> list[Key]:
        return self.guarded(spec).split_keys(parts)

    def committed_values(
        self, conn: psycopg.Connection, spec: StateSpec, keys: Sequence[Key], txid: int, at: datetime
    ) -> list[Any]:
        if spec.partitions == 1:
            return super().committed_values(conn, spec, keys, txid, at)
        pinned = Published(txid, ledger_side(conn, spec, txid).by)
        shown, rows = self.guarded(spec).multi_get_committed(keys, clock=at, pinned=pinned)
        if shown != pinned:
            raise MovedOnError(f"state {spec.name!r}: a row does not show batch {txid}; read again")
        return [row.value for row in rows]

    def session(
        self, conn: psycopg.Connection, spec: StateSpec, batch: Batch, *, shadow: bool = False
    ) -> ExternalSession:
        return RedisSession(conn, self.guarded(spec), batch)

    def _client(self) -> "redis.Redis | RedisCluster":
        # Imported here, because the library loads without redis-py.
        with naming_the_extra():
            from tidegauge.state_backends.backends.redis.client import client

        return client(self.timeout_seconds)


class RedisSession(ExternalSession):
    """Folds on the server if Lua can, and if there is no changelog, which needs the folded rows. Indexes the timers of
    opaque states, because their batches leave a record of the keys that they wrote."""

    rows: RedisBackingMap

    def _fold(self, batches: Sequence["pa.RecordBatch"]) -> int:
        if self._spec.folds_in_lua and not self._spec.changelog:
            merged = self.rows.merge(batches, self._batch.txid, self._batch.batch_time)
            self.refused = self.rows.refused
            return merged
        return super()._fold(batches)

    def publish(self, keys: int | None) -> None:
        """Publish the batch; a spread state has done so when it was checked."""
        if self._spec.partitions == 1:
            super().publish(keys)

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        if self._spec.kind != "opaque":
            return super().due_keys(due, before, most)
        return self.rows.timers(due).due_keys(self._spec, before, most, self._batch.txid - 1)

    def next_due(self, due: str) -> datetime | None:
        if self._spec.kind != "opaque":
            return super().next_due(due)
        return self.rows.timers(due).next_due(self._batch.txid)
