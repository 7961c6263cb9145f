"""A value that all threads of a process share for some seconds."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Cached(Generic[Value]):
    """Calls `read` at most once in `seconds`. Threads that call it during a read wait for its result."""

    def __init__(self, read: Callable[[], Value], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._lock = Lock()
        self._latest: tuple[float, Value] | None = None

    def __call__(self) -> Value:
        with self._lock:
            if self._latest is None or time.monotonic() - self._latest[0] > self._seconds:
                self._latest = time.monotonic(), self._read()
            return self._latest[1]

    def clear(self) -> None:
        self._latest = None
