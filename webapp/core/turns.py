"""Turns: who is next where clients compete for a few threads or connections, and who is refused.

Clients take turns, however much each of them has waiting.
"""

from collections import deque
from collections.abc import Callable

# The most that may wait for their turn, in total and per client.
MOST_WAITING, MOST_WAITING_EACH = 1_024, 256

Begin = Callable[[], None]


class PoolFullError(Exception):
    """All threads or connections are busy, and the queue for them is full."""

    def __init__(self, what: str) -> None:
        super().__init__(f"too many {what} wait for their turn; try again shortly")


class Turns:
    """For the thread of the event loop only, so no lock is needed. what: in the plural, for errors.

    busy: the turns that have begun and not ended. most: how many there may be.
    """

    def __init__(self, what: str, most: int) -> None:
        self._what = what
        self._most = most
        self.busy = self._waiting = 0
        # What waits, by client; the first client is the next.
        self._by_client: dict[str, deque[Begin]] = {}

    def wait(self, client: str, begin: Begin, *, admitted: bool = False) -> None:
        """Call `begin` at the client's next turn, now if one is free. The turn lasts until `end`.

        admitted: what begins continues admitted work, so it is never refused. Raises PoolFullError.
        """
        if self.busy < self._most:
            self._begin(begin)
            return
        mine = self._by_client.get(client, ())
        if not admitted and (self._waiting >= MOST_WAITING or len(mine) >= MOST_WAITING_EACH):
            raise PoolFullError(self._what)
        self._by_client.setdefault(client, deque()).append(begin)
        self._waiting += 1

    def end(self) -> None:
        self.busy -= 1
        if self._by_client:
            self._begin_next()

    def _begin_next(self) -> None:
        client = next(iter(self._by_client))
        waiting = self._by_client.pop(client)
        self._waiting -= 1
        self._begin(waiting.popleft())
        if waiting:
            self._by_client[client] = waiting  # last, so that the other clients get their turn first

    def _begin(self, begin: Begin) -> None:
        begin()  # before the turn counts, because it fails where no thread can be started
        self.busy += 1
