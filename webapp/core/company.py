"""Whether a caller has company: while nobody else asks, one caller may have all threads of a process."""

import time

# After a request of another caller.
FOR_SECONDS = 10.0


class Company:
    """For the thread of the event loop."""

    def __init__(self) -> None:
        self._caller = ""
        self._asked_at = self._other_asked_at = -FOR_SECONDS

    def note(self, caller: str) -> None:
        """Note that a verified caller asks. Strangers are not noted, because nobody has to make room for them."""
        if caller != self._caller:
            self._other_asked_at, self._caller = self._asked_at, caller
        self._asked_at = time.monotonic()

    @property
    def is_there(self) -> bool:
        """Return whether two callers or more have asked lately."""
        return time.monotonic() - self._other_asked_at < FOR_SECONDS
