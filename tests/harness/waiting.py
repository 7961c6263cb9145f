"""Waits for what another thread or process does."""

import time
from collections.abc import Callable
from typing import Any

PAUSE_SECONDS = 0.05


def eventually(holds: Callable[[], Any], seconds: float = 30) -> Any:
    """Return the first true value of `holds`. Raises AssertionError if none comes within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(PAUSE_SECONDS)
    return value
