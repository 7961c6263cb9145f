"""Tides: how many commits were heard of, per pipeline, so that who looks afterwards knows what he has missed.

A count is taken before a look and compared after it: what comes in between is not lost, it makes the counts differ.
"""

from collections import Counter
from collections.abc import Callable

# What those follow who follow all pipelines. None has that name.
EVERY_PIPELINE = ""

Poke = Callable[[], None]


class Tides:
    """Counts, and pokes those who follow. Of one event loop's thread."""

    def __init__(self) -> None:
        self._heard: Counter[str] = Counter()
        self._looks = 0
        self._txids: dict[str, int] = {}
        self._followers: dict[str, set[Poke]] = {}

    def count(self, pipeline: str) -> int:
        return self._heard[pipeline] + self._looks

    def txid(self, pipeline: str) -> int:
        """Return the batch that was last heard of, 0 where none was, or it is not known which."""
        return self._txids.get(pipeline, 0)

    def heard(self, pipeline: str, txid: int = 0) -> None:
        """Note a commit. txid: its batch, 0 where it is not known."""
        self._txids[pipeline] = txid
        for followed in {pipeline, EVERY_PIPELINE}:
            self._heard[followed] += 1
            self._poke(followed)

    def heard_of_all(self) -> None:
        """Something has changed that concerns those alone who follow all pipelines."""
        self._heard[EVERY_PIPELINE] += 1
        self._poke(EVERY_PIPELINE)

    def look_again(self) -> None:
        """Something may have been missed: everybody looks."""
        self._looks += 1
        self._txids.clear()
        for pipeline in list(self._followers):
            self._poke(pipeline)

    def follow(self, pipeline: str, poke: Poke) -> None:
        self._followers.setdefault(pipeline, set()).add(poke)

    def leave(self, pipeline: str, poke: Poke) -> None:
        followers = self._followers[pipeline]
        followers.discard(poke)
        if not followers:
            del self._followers[pipeline]

    def is_followed(self, pipeline: str) -> bool:
        return pipeline in self._followers

    def _poke(self, pipeline: str) -> None:
        for poke in list(self._followers.get(pipeline, ())):
            poke()
