"""Orders the clients that are served after a commit: a slice of them at a time, and the callers take turns.

A commit concerns all clients of its state at once. If they were all woken together, they would occupy the event loop
until all are served, and clients of another API key would wait behind them.
"""

import asyncio
from collections import deque

# As many clients as are served in about 5 ms.
SLICE = 16


class Turns:
    """Not thread-safe: use it only in the event loop's thread."""

    def __init__(self) -> None:
        # Waiting clients by caller; the first caller is next.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._giving: asyncio.Task[None] | None = None

    async def take(self, caller: str) -> None:
        """Return when it is this client's turn. caller: the client's API key or user."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        if self._giving is None or self._giving.done():
            self._giving = asyncio.create_task(self._give())
        await turn

    async def _give(self) -> None:
        while self._waiting:
            for _ in range(SLICE):
                if self._waiting:
                    self._give_one()
            # Let the clients of this slice continue, and whatever else is ready.
            await asyncio.sleep(0)

    def _give_one(self) -> None:
        caller = next(iter(self._waiting))
        turns = self._waiting.pop(caller)
        turn = turns.popleft()
        if turns:
            self._waiting[caller] = turns  # last, so that the other callers get their turn first
        if not turn.done():
            turn.set_result(None)
