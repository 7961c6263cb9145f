"""Committed rows of one state for an event loop, by redis-py's asyncio client of a server, a Sentinel or a cluster.

A call that fails is repeated once, because its connection may have been closed while it was idle. Threads try for
longer, and say what is wrong.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError

from tidegauge.state_backends.backends.redis.client import Classes, address, limits, made, unavailable
from tidegauge.state_backends.backends.redis.committed import SCRIPT, CommittedReads
from tidegauge.state_backends.backends.redis.keys import Buckets
from tidegauge.state_backends.backends.redis.rows import CHUNK_KEYS
from tidegauge.state_backends.backends.redis.scripts import Call, script_text
from tidegauge.state_backends.reader.scanned import CommittedRow, Published
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.steps import run_on_loop

ON_LOOP = Classes(redis.asyncio.Redis, Sentinel, RedisCluster, ClusterNode)


class RedisLoopRows:
    """See LoopRows. A read raises BackendUnavailable, BackendSetupError, and what one in a thread does."""

    def __init__(self, spec: StateSpec) -> None:
        self._reads = CommittedReads(Buckets(spec), spec)
        self._text = script_text(spec, SCRIPT)
        self._script: AsyncScript | None = None

    async def multi_get_committed(
        self, keys: Sequence[Key], *, clock: datetime | None = None, pinned: Published | None = None
    ) -> tuple[Published, Sequence[CommittedRow]]:
        return await run_on_loop(self._reads.multi_get(keys, CHUNK_KEYS, clock, pinned), self._replies)

    async def close(self) -> None:
        await self._client().aclose()

    def _client(self) -> Any:
        return _client(asyncio.get_running_loop(), *address())

    async def _replies(self, calls: Iterable[Call[None]]) -> list[Any]:
        client = self._client()
        with unavailable():
            await client.initialize()  # of a cluster, where its slots are
            script, sent = self._script_of(client), list(calls)
            if len(sent) == 1:
                [(_, keys, arguments)] = sent
                return [await script(keys, arguments)]
            return await _sent_together(client, script, sent)

    def _script_of(self, client: Any) -> AsyncScript:
        if self._script is None or self._script.registered_client is not client:
            self._script = client.register_script(self._text)
        return self._script


async def _sent_together(client: Any, script: AsyncScript, calls: Sequence[Call[None]]) -> list[Any]:
    """Return the replies to calls that are sent in one round trip, to all nodes of a cluster at once."""
    pipe = client.pipeline(transaction=False)
    for _, keys, arguments in calls:
        pipe.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
    replies: list[Any] = await pipe.execute(raise_on_error=False)
    for place, (_, keys, arguments) in enumerate(calls):
        if isinstance(replies[place], NoScriptError):
            replies[place] = await script(keys, arguments)
        if isinstance(replies[place], Exception):
            raise replies[place]
    return replies


# A connection belongs to the loop that has opened it. A process has one loop.
@lru_cache(maxsize=1)
def _client(loop: asyncio.AbstractEventLoop, url: str, setting: str) -> Any:
    # Without time limits, because the caller has one, and redis-py makes a task for each of its own.
    unlimited = dict.fromkeys(limits(None))
    return made(ON_LOOP, url, setting, unlimited | {"retry": Retry(NoBackoff(), 1)})
