"""The threads of the events process, each with a database connection: in each pool the callers take turns.

Requests that arrive, reads for streams, and what the process does by itself have threads of their own. So strangers who
open sockets with keys that do not exist wait for each other, and hold back neither commits nor health checks. An API
key that follows hundreds of different keys of a state waits for its own reads.
"""

import asyncio
import contextvars
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.db import close_old_connections, connections

from tidegauge.webapp.core.pools import Pool

Answer = TypeVar("Answer")

ARRIVALS, READS, CHECKS = "arrivals", "reads", "checks"
# Reads are short, and shared by the clients.
SIZES = {ARRIVALS: 2, READS: 4, CHECKS: 2}


class Threads:
    def __init__(self) -> None:
        self._pools = {name: Pool(name, threads) for name, threads in SIZES.items()}

    async def run(self, pool: str, work: Callable[[], Answer], caller: str = "") -> Answer:
        """Return what `work` returns in a thread. Raises PoolFullError if too many requests wait to be authorized."""
        job = partial(contextvars.copy_context().run, _with_live_connection, work)
        return await self._pools[pool].run(job, caller, admitted=pool != ARRIVALS)

    async def close_connections(self) -> None:
        closing = [self.run(pool, connections.close_all) for pool, threads in SIZES.items() for _ in range(threads)]
        await asyncio.gather(*closing, return_exceptions=True)


def _with_live_connection(work: Callable[[], Answer]) -> Answer:
    # As Django does at the start of a request: drop the thread's connection if it is dead or too old.
    close_old_connections()
    return work()
