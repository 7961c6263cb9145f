"""The bytes of bodies that a web process holds, charged to their callers.

Strangers have a quarter of all bytes together, and nobody has more than an eighth. So requests with a verified API key
find room whatever strangers send, and one API key leaves room for the others.
"""

from collections import Counter

from django.conf import settings

from tidegauge.webapp.accounts.callers import Caller

STRANGERS, EACH = 4, 8


class TooManyBytesError(Exception):
    """The caller, or all strangers together, hold as many bytes as they may."""


class HeldBytes:
    """For the thread of the event loop only."""

    def __init__(self) -> None:
        self._by_caller: Counter[str] = Counter()
        self._total = self._of_strangers = 0

    @property
    def strangers_hold_much(self) -> bool:
        """Whether one of them may soon be refused, so that it matters who is one."""
        return self._of_strangers > settings.TIDEGAUGE_REQUESTS_MAX_BYTES // EACH // 2

    def hold(self, caller: Caller, size: int) -> None:
        """Charge bytes to a caller until `free`, also if it raises TooManyBytesError."""
        self._add(caller, size)
        most = settings.TIDEGAUGE_REQUESTS_MAX_BYTES
        if self._by_caller[caller.name] > most // EACH:
            raise TooManyBytesError("too many large requests of yours at once; send fewer, or less at a time")
        if self._total > most or (not caller.is_verified and self._of_strangers > most // STRANGERS):
            raise TooManyBytesError("too many large requests at once; try again shortly")

    def free(self, caller: Caller, size: int) -> None:
        self._add(caller, -size)
        if not self._by_caller[caller.name]:
            del self._by_caller[caller.name]

    def _add(self, caller: Caller, size: int) -> None:
        self._total += size
        self._by_caller[caller.name] += size
        if not caller.is_verified:
            self._of_strangers += size
