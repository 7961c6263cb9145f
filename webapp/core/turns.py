"""Turns: who is next where clients compete for a few threads or connections, and who is refused.

Clients take turns, however much each of them has waiting.
"""

from collections import Counter, deque
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

    busy: the turns that have begun and not ended. most: how many there may be. most_each: how many of one client now.
    """

    def __init__(self, what: str, most: int, most_each: Callable[[], int] | None = None) -> None:
        self._what = what
        self._most = most
        self._most_each = most_each or (lambda: most)
        self.busy = self._waiting = 0
        self._busy_of: Counter[str] = Counter()
        # What waits, by client; the first client is the next.
        self._by_client: dict[str, deque[Begin]] = {}

    def begin_now(self, client: str) -> bool:
        """Begin a turn of the client if one is free, and return whether one was. The turn lasts until `end`."""
        if not self._is_free(client):
            return False
        self._count(client)
        return True

    def wait(self, client: str, begin: Begin, *, admitted: bool = False) -> None:
        """Call `begin` at the client's next turn, now if one is free. The turn lasts until `end`.

        admitted: what begins continues admitted work, so it is never refused. Raises PoolFullError.
        """
        if self._is_free(client):
            self._begin(client, begin)
            return
        mine = self._by_client.get(client, ())
        if not admitted and (self._waiting >= MOST_WAITING or len(mine) >= MOST_WAITING_EACH):
            raise PoolFullError(self._what)
        self._by_client.setdefault(client, deque()).append(begin)
        self._waiting += 1

    def end(self, client: str) -> None:
        self.busy -= 1
        self._busy_of[client] -= 1
        if not self._busy_of[client]:
            del self._busy_of[client]
        most_each = self._most_each()
        while self.busy < self._most and (following := self._next(most_each)) is not None:
            self._begin_next(following)

    def _next(self, most_each: int) -> str | None:
        return next((client for client in self._by_client if self._busy_of[client] < most_each), None)

    def _begin_next(self, client: str) -> None:
        waiting = self._by_client.pop(client)
        self._waiting -= 1
        self._begin(client, waiting.popleft())
        if waiting:
            self._by_client[client] = waiting  # last, so that the other clients get their turn first

    def _begin(self, client: str, begin: Begin) -> None:
        begin()  # before the turn counts, because it fails where no thread can be started
        self._count(client)

    def _is_free(self, client: str) -> bool:
        return self.busy < self._most and self._busy_of[client] < self._most_each()

    def _count(self, client: str) -> None:
        self.busy += 1
        self._busy_of[client] += 1
