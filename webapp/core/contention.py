"""Whether several callers ask at the same time: one that is alone may have more threads of the process."""

import time

# After a request of another caller.
FOR_SECONDS = 10.0


class Contention:
    """For the thread of the event loop."""

    def __init__(self) -> None:
        self._caller = ""
        self._asked_at = self._other_asked_at = -FOR_SECONDS

    def note(self, caller: str) -> None:
        """Note that a verified caller asks. Strangers are not noted, because nobody has to give way to them."""
        if caller != self._caller:
            self._other_asked_at, self._caller = self._asked_at, caller
        self._asked_at = time.monotonic()

    @property
    def is_there(self) -> bool:
        """Return whether two callers or more have asked lately."""
        return time.monotonic() - self._other_asked_at < FOR_SECONDS
