"""Rebuilding a state's rows from its changelog, in PostgreSQL or into Redis, while its pipeline stands still."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import redis
from django.conf import settings

from state_backends import (
    BatchLedger,
    Catalog,
    Changelog,
    IBackingMap,
    PostgresBackingMap,
    RedisBackingMap,
    StateSpec,
    rebuild,
)
from state_backends.errors import SpecError
from state_backends.journal.rebuild import Progress
from webapp.states import stores
from webapp.states.models import State

STORES = ("postgres", "redis")


def rebuild_state(*, state: str, to: str, resume_from: Any = None) -> Iterator[Progress]:
    """Put the rows of a state into a store, chunk by chunk, as they were after the committed batch.

    to: one of STORES. resume_from: the last key that a run which was cut short has done.
    Raises UnknownStateError, PipelineHeldError while a driver lives; SpecError for a state without a changelog, or
    without a table to put its rows into.
    """
    with stores.own_connection() as conn:
        spec = Catalog(conn).get(state)
        log = Changelog(conn, spec)
        if to == "postgres" and spec.backend != "postgres":
            raise SpecError(f"state {state!r}: has no table, it lives in {spec.backend}; rebuild it there")
        after = None if resume_from is None else spec.check_key(resume_from)
        pipeline = State.objects.get(name=state).pipeline_id
        with BatchLedger(conn, pipeline).idle():
            yield from _into_postgres(conn, log, after) if to == "postgres" else _into_redis(spec, log, after)


def _into_postgres(conn: psycopg.Connection, log: Changelog, after: Any) -> Iterator[Progress]:
    yield from _into(PostgresBackingMap(conn, log.spec), log, after)


def _into_redis(spec: StateSpec, log: Changelog, after: Any) -> Iterator[Progress]:
    with closing(redis.Redis.from_url(settings.REDIS_URL)) as client:
        target = RedisBackingMap(client, spec)
        yield from _into(target, log, after)
        # Readers of Redis go by what is mirrored there.
        target.publish(log.extent().committed)


def _into(target: IBackingMap, log: Changelog, after: Any) -> Iterator[Progress]:
    # What a driver that died has left of the next batch goes first, as it would at the next start.
    target.revert(log.extent().committed + 1)
    yield from rebuild(log, target, resume_from=after)
