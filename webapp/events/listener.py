"""The listener: one connection that hears of every commit, whoever follows; it comes back by itself.

What was said while it was away, or half dead, nobody repeats. So whenever it has come back, and every now and then
besides, everybody is told to look.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import orjson
import psycopg
from psycopg import sql

from state_backends.journal.ledger import CHANNEL
from webapp.events.tides import Tides

logger = logging.getLogger(__name__)

# Between two tries to reach a database that is away: from this to that, doubling.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
# A connection may die without a word; it is asked for one every so often, and has so long to answer.
CHECK_SECONDS, ANSWER_SECONDS = 15.0, 5.0


class Listener:
    """connection: psycopg's parameters. tides: what is told of commits."""

    def __init__(self, connection: dict[str, Any], tides: Tides) -> None:
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
