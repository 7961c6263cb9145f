"""Waiting for a batch: a client that wrote something reads it as soon as it is committed."""

import time
from collections.abc import Callable

from rest_framework.exceptions import APIException

from webapp.lookup.question import When

# From a commit to its answer there is half of the pause at hand.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, GROWTH = 0.005, 0.1, 1.5


class NotReachedError(APIException):
    """The batch did not come in time: ask again. txid: the committed one."""

    status_code = 503
    wait = 1  # seconds, for Retry-After

    def __init__(self, what: str, when: When, txid: int) -> None:
        super().__init__(
            f"{what}: batch {when.min_txid} was not committed within {when.wait_ms} ms, the newest one is {txid}; "
            "ask again"
        )
        self.members = {"txid": txid, "min_txid": when.min_txid}


def await_batch(what: str, when: When, committed: Callable[[], int]) -> None:
    """Return once `committed` gives the batch that is waited for, or a later one. Raises NotReachedError."""
    if when.min_txid is None:
        return
    deadline, pause = time.monotonic() + when.wait_ms / 1000, FIRST_PAUSE_SECONDS
    while (txid := committed()) < when.min_txid:
        left = deadline - time.monotonic()
        if left <= 0:
            raise NotReachedError(what, when, txid)
        sleep(min(pause, left))
        pause = min(pause * GROWTH, LONGEST_PAUSE_SECONDS)


def sleep(seconds: float) -> None:
    time.sleep(seconds)
