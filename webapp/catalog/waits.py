"""Requests that wait for a batch. They hold no thread and no connection, because one statement polls for all of them.

A view that must wait records that and answers at once. The front drops this answer, waits on its event loop, and calls
the view again when the batch is committed or the time is up. Without a front, the view itself waits.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from tidegauge.webapp.catalog import readers

# Short, so that it adds little to a wait; one statement serves all waits of the process, so it costs little.
POLL_SECONDS = 0.02

# A store outside of the database shows a batch within this time of its commit, if its driver lives.
PUBLISHED_SECONDS = 0.5

COMMITTED = (
    "SELECT s.name, p.committed_txid FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline "
    "WHERE s.name = ANY(%s)"
)

Committed = Mapping[str, int]


@dataclass
class Wait:
    """states: all of them must have committed batch `txid`. until: on the monotonic clock. client: who waits.

    is_over: the front has waited and calls the view again, which must not ask it to wait once more.
    """

    states: Sequence[str] = ()
    txid: int = 0
    until: float | None = None
    client: str = ""
    is_over: bool = False

    @property
    def is_wanted(self) -> bool:
        return self.until is not None and not self.is_over

    def is_met(self, committed: Committed) -> bool:
        # A state that no longer exists counts as met, so that the view can answer that it is gone.
        return all(committed.get(state, self.txid) >= self.txid for state in self.states)


# The front sets it for each request; None without a front.
of_request: ContextVar[Wait | None] = ContextVar("wait", default=None)


def deadline(seconds: float) -> float:
    """Return the time until which a request waits, on the monotonic clock.

    If the front has already waited, what is left of that, but not long, because a thread waits then.
    """
    wait, now = of_request.get(), time.monotonic()
    if wait is None or not wait.is_over:
        return now + seconds
    return min(wait.until or now, now + PUBLISHED_SECONDS)


def leave_to_front(states: Sequence[str], txid: int, until: float) -> bool:
    """Have the front wait, if there is one and it has not waited yet; returns whether it will."""
    wait = of_request.get()
    if wait is None or wait.is_over:
        return False
    wait.states, wait.txid, wait.until = states, txid, until
    return True


def committed_now(states: Sequence[str]) -> Committed:
    return dict(readers.read(lambda conn: conn.execute(COMMITTED, [list(states)]).fetchall()))


class Waits:
    """The waits of a process, on its event loop. read: returns the committed txids of states; it runs in a thread."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[Committed]]) -> None:
        self._read = read
        self._waiting: dict[int, tuple[Wait, asyncio.Future[None]]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def over(self, wait: Wait, disconnected: "asyncio.Future[None]") -> None:
        """Return when the batch is committed, when the time is up, or when the client has gone."""
        met: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[id(wait)] = (wait, met)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            seconds = max(0.0, (wait.until or 0.0) - time.monotonic())
            await asyncio.wait([met, disconnected], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[id(wait)]
            wait.is_over = True

    async def _poll(self) -> None:
        while self._waiting:
            await asyncio.sleep(POLL_SECONDS)
            # A copy, because the read does not cover the states of waits that are added while it runs.
            asked = list(self._waiting.values())
            states = sorted({state for wait, _ in asked for state in wait.states})
            try:
                committed = await self._read(states)
            except Exception:  # noqa: S112  the view reports the error when it is called again
                continue
            for wait, met in asked:
                if wait.is_met(committed) and not met.done():
                    met.set_result(None)
