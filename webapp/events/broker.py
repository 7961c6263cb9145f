"""Tides: how many commits were heard of, per pipeline, so that who looks afterwards knows what he has missed.

A count is taken before a look and compared after it: what comes in between is not lost, it makes the counts differ.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import psycopg
from psycopg import sql

from state_backends.ledger import CHANNEL

# What those follow who follow all pipelines. None has that name.
EVERY_PIPELINE = ""

Poke = Callable[[], None]


class CommitSignals:
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


# The listener: one connection that hears of every commit, whoever follows; it comes back by itself.
#
# What was said while it was away, or half dead, nobody repeats. So whenever it has come back, and every now and then
# besides, everybody is told to look.


logger = logging.getLogger(__name__)

# Between two tries to reach a database that is away: from this to that, doubling.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
# A connection may die without a word; it is asked for one every so often, and has so long to answer.
CHECK_SECONDS, ANSWER_SECONDS = 15.0, 5.0


class Listener:
    """connection: psycopg's parameters. tides: what is told of commits."""

    def __init__(self, connection: dict[str, Any], tides: CommitSignals) -> None:
        self._connection = connection
        self._tides = tides
        self._pause = PAUSE_SECONDS

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError, TimeoutError) as error:
                logger.warning("commits are not heard of (%s); trying again", type(error).__name__)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    async def _listen(self) -> None:
        connecting = psycopg.AsyncConnection.connect(**self._connection, autocommit=True)
        conn = await asyncio.wait_for(connecting, ANSWER_SECONDS)
        try:
            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
            self._pause = PAUSE_SECONDS
            while True:
                self._tides.look_again()
                async for notice in conn.notifies(timeout=CHECK_SECONDS):
                    self._tell(notice.payload)
                await asyncio.wait_for(conn.execute("SELECT 1"), ANSWER_SECONDS)
        finally:
            await conn.close()

    def _tell(self, payload: str) -> None:
        told: Any = None
        with suppress(orjson.JSONDecodeError):
            told = orjson.loads(payload)
        # A swap says which pipeline, and not which batch.
        match told:
            case {"pipeline": str(pipeline), "txid": int(txid)}:
                self._tides.heard(pipeline, txid)
            case {"pipeline": str(pipeline)}:
                self._tides.heard(pipeline)
            case _:
                self._tides.look_again()
