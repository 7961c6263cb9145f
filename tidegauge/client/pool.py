"""The connections of the blocking client: each serves one request at a time, until its answer has been read.

Not httpx's own pool, because it can close a connection while another thread waits for its answer there (issue 1110 of
httpcore), and that thread then waits until its timeout. This cannot happen to a client with one connection that is
lent to one thread at a time.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import httpx


class Pool:
    """http: the arguments of `httpx.Client`. It opens connections when needed, as many as `limits` allows."""

    def __init__(self, http: Mapping[str, Any]) -> None:
        limits, verify = http["limits"], http["verify"]
        one = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        # Made once for all clients, because it reads every certificate.
        context = httpx.create_ssl_context() if verify is True else verify
        self._clients = [
            httpx.Client(**{**http, "limits": one, "verify": context}) for _ in range(limits.max_connections)
        ]
        self._free = list(self._clients)
        self._waiting: deque[SimpleQueue[httpx.Client]] = deque()
        self._lock = threading.Lock()

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def send(self, timeout: httpx.Timeout, **request: Any) -> httpx.Response:
        """Send a request and return its answer, unread. The connection is free again when the answer is closed.

        Raises httpx.PoolTimeout if no connection is free within `timeout.pool` seconds, and what `httpx.Client.send`
        raises.
        """
        client = self._lend(timeout.pool)
        try:
            answer = client.send(client.build_request(timeout=timeout, **request), stream=True)
        except BaseException:
            self._take_back(client)
            raise
        assert isinstance(answer.stream, httpx.SyncByteStream)
        answer.stream = _Content(answer.stream, lambda: self._take_back(client))
        return answer

    def _lend(self, seconds: float | None) -> httpx.Client:
        with self._lock:
            if self._free:
                # The last used one, because its connection is most likely still open.
                return self._free.pop()
            turn: SimpleQueue[httpx.Client] = SimpleQueue()
            self._waiting.append(turn)
        try:
            return turn.get(timeout=seconds)
        except BaseException as error:
            self._leave(turn)
            if isinstance(error, Empty):
                raise httpx.PoolTimeout(f"{len(self._clients)} connections were in use for {seconds:g} s") from None
            raise

    def _leave(self, turn: SimpleQueue[httpx.Client]) -> None:
        with self._lock:
            is_waiting = turn in self._waiting
            if is_waiting:
                self._waiting.remove(turn)
        if not is_waiting:
            # Another thread has lent it a client after its timeout; give that back so that it is not lost.
            self._take_back(turn.get())

    def _take_back(self, client: httpx.Client) -> None:
        with self._lock:
            if self._waiting:
                # Handed to the thread that has waited longest, because a busy thread would otherwise starve the others.
                self._waiting.popleft().put(client)
            else:
                self._free.append(client)


class _Content(httpx.SyncByteStream):
    """The content of an answer. closed: called once when the content is closed."""

    def __init__(self, content: httpx.SyncByteStream, closed: Callable[[], None]) -> None:
        self._content = content
        self._closed: Callable[[], None] | None = closed

    def __iter__(self) -> Iterator[bytes]:
        yield from self._content

    def close(self) -> None:
        closed, self._closed = self._closed, None
        try:
            self._content.close()
        finally:
            if closed is not None:
                closed()
