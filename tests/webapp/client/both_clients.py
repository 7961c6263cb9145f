"""Both clients by one face, so that each test runs with each of them."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tidegauge.client import AsyncClient, AsyncSavedQuery, AsyncState, Client


class Blocking:
    """An AsyncClient, or a state of one, whose calls block."""

    def __init__(self, asynchronous: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._asynchronous = asynchronous
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._asynchronous)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._asynchronous, name)
        return self._blocking(found) if callable(found) else found

    def close(self) -> None:
        self._loop.run_until_complete(self._asynchronous.close())
        self._loop.close()

    def _blocking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def blocking(*args: Any, **options: Any) -> Any:
            answer = call(*args, **options)
            if isinstance(answer, AsyncClient | AsyncState | AsyncSavedQuery):
                return Blocking(answer, self._loop)
            if isinstance(answer, AsyncIterator):
                return self._items(answer)
            return self._loop.run_until_complete(answer) if inspect.isawaitable(answer) else answer

        return blocking

    def _items(self, items: Any) -> Iterator[Any]:
        ended = object()
        try:
            while (item := self._loop.run_until_complete(anext(items, ended))) is not ended:
                yield item
        finally:
            self._loop.run_until_complete(items.aclose())


def sync_client(*args: Any, **options: Any) -> Any:
    return Client(*args, **options)


def async_client(*args: Any, renew: Callable[[], Any] | None = None, **options: Any) -> Any:
    async def awaited() -> Any:
        assert renew is not None
        return renew()

    client = AsyncClient(*args, renew=None if renew is None else awaited, **options)
    return Blocking(client, asyncio.new_event_loop())


BOTH = [sync_client, async_client]
