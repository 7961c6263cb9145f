"""The threads of the events process: strangers wait for each other alone, and a caller for its own reads."""

import asyncio
import threading
from collections.abc import Callable

from tidegauge.webapp.core.turns import MOST_WAITING_EACH, PoolFullError
from tidegauge.webapp.events.threads import ARRIVALS, CHECKS, READS, SIZES, Threads


def blocked(threads: Threads, pool: str, until: threading.Event, caller: str, count: int) -> list[asyncio.Task]:
    return [asyncio.ensure_future(threads.run(pool, lambda: until.wait(10), caller)) for _ in range(count)]


def run(check: Callable[[Threads, threading.Event], object]) -> None:
    until = threading.Event()

    async def checked() -> None:
        try:
            await asyncio.wait_for(check(Threads(), until), 10)
        finally:
            until.set()

    asyncio.run(checked())


def test_arrivals_that_wait_hold_back_neither_reads_nor_checks():
    async def check(threads, until):
        arrivals = blocked(threads, ARRIVALS, until, "address 192.0.2.7", 50)
        assert await threads.run(READS, lambda: "read", "key 1") == "read"
        assert await threads.run(CHECKS, lambda: "well") == "well"
        until.set()
        await asyncio.gather(*arrivals)

    run(check)


def test_a_stranger_waits_behind_no_more_than_one_turn_of_each_other_one():
    async def check(threads, until):
        first = blocked(threads, ARRIVALS, until, "address 192.0.2.7", 100)
        done = []
        second = asyncio.ensure_future(threads.run(ARRIVALS, lambda: done.append(1), "address 198.51.100.1"))
        await asyncio.sleep(0)
        until.set()
        await second
        assert sum(each.done() for each in first) <= 2 * SIZES[ARRIVALS]
        await asyncio.gather(*first)

    run(check)


def test_a_caller_that_sends_too_many_is_refused_and_reads_never_are():
    async def check(threads, until):
        arrivals = blocked(threads, ARRIVALS, until, "address 192.0.2.7", MOST_WAITING_EACH + SIZES[ARRIVALS] + 5)
        reads = blocked(threads, READS, until, "key 1", MOST_WAITING_EACH + SIZES[READS] + 5)
        await asyncio.sleep(0.01)
        until.set()
        found = await asyncio.gather(*arrivals, return_exceptions=True)
        assert sum(isinstance(each, PoolFullError) for each in found) == 5
        assert all(await asyncio.gather(*reads))

    run(check)
