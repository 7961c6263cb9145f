"""The states of a pipeline that live in Redis, as its driver sees to them: who may write, and what is committed.

The ledger is in PostgreSQL, and Redis is told of it: the attempt before it writes, the txid after its commit. A driver
that dies in between leaves Redis a batch behind; the next one makes that good before it does anything else.
"""

import os
from collections.abc import Iterable
from functools import cache

import psycopg
import redis

from pipelines.errors import PipelineError
from state_backends.backends.redis.rows import RedisBackingMap
from state_backends.backends.redis.upkeep import RedisUpkeep, Standing
from state_backends.errors import LostBatchesError, SpecMismatchError
from state_backends.ledger import Batch, BatchLedger, overtaken
from state_backends.schema.catalog import Catalog
from state_backends.spec import StateSpec

# A call that takes longer has met a stuck server; failing it lets the batch be tried again.
TIMEOUT_SECONDS = 60.0


def redis_client() -> redis.Redis:
    """Return this process's client of the Redis at `REDIS_URL`. Raises PipelineError where that is unset or no URL."""
    url = os.environ.get("REDIS_URL")
    if not url:
        raise PipelineError(
            "a state lives in redis, and REDIS_URL is not set here; set it for the driver and its executors"
        )
    return _client(url)


@cache
def _client(url: str) -> redis.Redis:
    try:
        return redis.Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=10)
    except ValueError:
        # The cause may quote a piece of the URL, and so of the password.
        raise PipelineError("REDIS_URL is no URL of a Redis, as redis://:password@host:6379/0") from None


def check_redis(specs: Iterable[StateSpec]) -> None:
    """Raise PipelineError where a state lives in Redis and nobody said where that is."""
    if any(spec.backend == "redis" for spec in specs):
        redis_client()


class RedisStates:
    """Those of some states of one pipeline that live in Redis; all of its methods do nothing where none does."""

    def __init__(self, specs: Iterable[StateSpec]) -> None:
        self._specs = [spec for spec in specs if spec.backend == "redis"]

    @classmethod
    def of(cls, conn: psycopg.Connection, pipeline: str) -> "RedisStates":
        """Return all those that the catalog knows: one that is fed no longer still says which batch it shows."""
        return cls(Catalog(conn).specs(pipeline))

    def check_new(self, conn: psycopg.Connection) -> None:
        """Raise SpecMismatchError where Redis has something under the name of a state that is not registered yet."""
        known = Catalog(conn).names() if self._specs else []
        for spec in self._specs:
            if spec.name not in known and not self._upkeep(spec).standing().is_empty:
                raise SpecMismatchError(
                    f"state {spec.name!r}: Redis has keys of that name already, tidemark:{{{spec.name}}}:*, of another "
                    "database or time; choose another name, or remove them first"
                )

    def catch_up(self, conn: psycopg.Connection, ledger: BatchLedger) -> None:
        """Publish what the ledger has committed, before anything is read or written.

        Raises FencedError, and LostBatchesError where Redis is further behind than a crash leaves it.
        """
        if not self._specs:
            return
        with conn.transaction():
            # Held until it is published, so that nobody takes the batch back meanwhile.
            row = conn.execute(
                "SELECT fence, committed_txid FROM tidemark.pipeline WHERE name = %s FOR SHARE", [ledger.pipeline]
            ).fetchone()
            if row is None or row[0] != ledger.fence:
                raise overtaken(ledger.pipeline, ledger.fence, None if row is None else row[0])
            since: dict[str, int] = dict(
                conn.execute(
                    "SELECT name, since_txid FROM tidemark.state WHERE pipeline = %s", [ledger.pipeline]
                ).fetchall()
            )
            for spec in self._specs:
                self._catch_up(spec, row[1], is_new=since[spec.name] == row[1])

    def admit(self, batch: Batch) -> None:
        """Let this attempt write, and no older one. Raises FencedError, LostBatchesError."""
        for spec in self._specs:
            standing = self._upkeep(spec).standing()
            if standing.published < batch.txid - 1:
                raise _lost(spec, standing, batch.txid - 1)
            RedisBackingMap(redis_client(), spec).admit(batch.fence, batch.txid, batch.attempt)

    def publish(self, batch: Batch) -> None:
        """Show the batch to readers, once the ledger has committed it. Raises FencedError."""
        for spec in self._specs:
            attempt = RedisBackingMap(redis_client(), spec).under(batch.fence, batch.txid, batch.attempt)
            attempt.publish(batch.txid)

    def _catch_up(self, spec: StateSpec, committed: int, *, is_new: bool) -> None:
        standing = self._upkeep(spec).standing()
        is_a_commit_behind = standing.published == committed - 1 and standing.admitted == committed
        if standing.published < committed and not is_a_commit_behind and not is_new:
            raise _lost(spec, standing, committed)
        RedisBackingMap(redis_client(), spec).publish(committed)

    def _upkeep(self, spec: StateSpec) -> RedisUpkeep:
        return RedisUpkeep(redis_client(), spec)


def _lost(spec: StateSpec, standing: Standing, committed: int) -> LostBatchesError:
    again = (
        f"run `manage.py rebuild {spec.name} --to redis`"
        if spec.changelog
        else "feed it anew under another name, as it keeps no changelog to be rebuilt from"
    )
    return LostBatchesError(
        f"state {spec.name!r}: batch {committed} was committed, and Redis is at batch {standing.published}: it has "
        f"lost the rest; restore its newest copy, or {again}"
    )
