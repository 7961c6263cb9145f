"""The password checks of a process: one at a time, and few of one address.

A check costs a third of a second of a processor, which lookups need as well, and one of the three threads of strangers
while it waits. So people who send wrong passwords on many connections must not have many checks under way.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.exceptions import PermissionDenied

# Of one address, the one under way included; people who share an address rarely sign in at the same moment.
MOST_EACH, WAIT_SECONDS = 2, 10.0
# Of all addresses with too many wrong passwords together.
MOST_OF_SUSPECTS, SUSPECT_WAIT_SECONDS = 1, 2.0
SUSPECTS = "suspects"


class PasswordChecks:
    def __init__(self) -> None:
        self._checking = threading.Lock()
        self._counting = threading.Lock()
        self._asked: Counter[str] = Counter()

    @contextmanager
    def turn(self, network: str, *, is_suspect: bool) -> Iterator[None]:
        """Wait until no other password is checked. Raises PermissionDenied if too many wait, or for too long."""
        name = SUSPECTS if is_suspect else network
        self._ask(name, MOST_OF_SUSPECTS if is_suspect else MOST_EACH)
        try:
            if not self._checking.acquire(timeout=SUSPECT_WAIT_SECONDS if is_suspect else WAIT_SECONDS):
                raise PermissionDenied
            try:
                yield
            finally:
                self._checking.release()
        finally:
            self._leave(name)

    def _ask(self, name: str, most: int) -> None:
        with self._counting:
            if self._asked[name] >= most:
                raise PermissionDenied
            self._asked[name] += 1

    def _leave(self, name: str) -> None:
        with self._counting:
            self._asked[name] -= 1
            if not self._asked[name]:
                del self._asked[name]


password_checks = PasswordChecks()
