"""Waits for a batch, on the event loop."""

import asyncio
import time
from contextvars import Context

from tidegauge.webapp.catalog import waits
from tidegauge.webapp.catalog.waits import Wait, Waits


def wait_for(state: str) -> Wait:
    return Wait([state], txid=1, until=time.monotonic() + 600)


def test_one_that_begins_while_the_batches_of_others_are_read_is_not_over():
    async def run() -> list[list[str]]:
        reads: list[list[str]] = []
        never = asyncio.get_running_loop().create_future()

        async def read(states):
            reads.append(list(states))
            if len(reads) == 1:
                second.append(asyncio.create_task(waiting.over(wait_for("b"), never)))
                await asyncio.sleep(0)
                return {"a": 1}
            assert not second[0].done()
            return {"b": len(reads) - 2}

        second: list[asyncio.Task[None]] = []
        waiting = Waits(read)
        async with asyncio.timeout(30):
            await waiting.over(wait_for("a"), never)
            await second[0]
        return reads

    assert asyncio.run(run()) == [["a"], ["b"], ["b"]]


def test_it_ends_with_its_client():
    async def run() -> bool:
        async def read(states):
            return {"a": 0}

        async with asyncio.timeout(30):
            disconnected = asyncio.ensure_future(asyncio.sleep(0))
            await Waits(read).over(wait := wait_for("a"), disconnected)
        return wait.is_over

    assert asyncio.run(run())


def test_after_the_front_has_waited_the_view_waits_for_the_publication_at_most():
    def ask() -> None:
        waits.of_request.set(Wait(["a"], txid=1, until=time.monotonic() + 600, is_over=True))
        assert waits.deadline(600) <= time.monotonic() + waits.PUBLISHED_SECONDS
        waits.of_request.set(Wait(["a"], txid=1, until=time.monotonic(), is_over=True))
        assert waits.deadline(600) <= time.monotonic()
        assert not waits.leave_to_front(["a"], 1, 0.0)

    Context().run(ask)
