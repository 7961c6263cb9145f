"""Password hashing in a thread of low priority.

A hash takes a third of a second of a processor. At low priority it waits for lookups and the database, so people who
guess passwords slow them down less.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache

from django.contrib.auth.hashers import PBKDF2PasswordHasher

NICENESS = 19


class LowPriorityHasher(PBKDF2PasswordHasher):
    """Django's own, whose hashes it makes and reads."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        return _thread().submit(super().encode, password, salt, iterations).result()


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "passwords", _lower_priority)


os.register_at_fork(after_in_child=_thread.cache_clear)  # because a child has no threads


def _lower_priority() -> None:
    # Of this thread alone on Linux; elsewhere there is no such process, and the priority stays as it is.
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
