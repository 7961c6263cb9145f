"""Whether several callers ask at the same time: one that is alone may have more threads of the process."""

import ctypes
import time
import zlib
from typing import Any

# After a request of another caller.
FOR_SECONDS = 10.0


class _Asked(ctypes.Structure):
    """The caller that asked last, as a checksum, when it did, and when the last other one did, in monotonic time."""

    _fields_ = (("caller", ctypes.c_uint32), ("at", ctypes.c_double), ("other_at", ctypes.c_double))


class Contention:
    """For the threads of event loops. memory: SIZE bytes, zero at first, which the workers of a service share.

    Shared, because otherwise a caller that is alone in one worker would take all of that worker's threads, and the
    database and the cores with it, from callers of the other workers. Workers do not lock it: if two of them write at
    once, what remains is still that somebody asked a moment ago.
    """

    SIZE = ctypes.sizeof(_Asked)

    def __init__(self, memory: Any = None) -> None:
        self._asked = _Asked.from_buffer(bytearray(self.SIZE) if memory is None else memory)

    def note(self, caller: str) -> None:
        """Note that a verified caller asks. Strangers are not noted, because nobody has to give way to them."""
        asked, checksum = self._asked, zlib.crc32(caller.encode())
        if checksum != asked.caller:
            asked.other_at, asked.caller = asked.at, checksum
        asked.at = time.monotonic()

    @property
    def is_there(self) -> bool:
        """Return whether two callers or more have asked lately."""
        other_at = self._asked.other_at
        # A time to come is from before a restart of the machine.
        return other_at > 0 and 0 <= time.monotonic() - other_at < FOR_SECONDS
