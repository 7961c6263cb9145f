"""Connections of the event loop to the primary: a few, for which the clients of all lookups take turns.

They have what Django's connections have: the session settings, the time limit of statements, prepared statements, an
age. They are in autocommit mode, because each statement sees one snapshot anyway. Through a connection pooler there are
none, because what they set at their start would apply to other clients.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import psycopg
from django.conf import settings
from psycopg.pq import TransactionStatus

from tidegauge.state_backends.session import connection_options
from tidegauge.webapp.catalog.readers import plain_parameters
from tidegauge.webapp.core.pools import loop_connections
from tidegauge.webapp.core.turns import Turns

# After a failure, and while all wait for a lock, threads answer for so long: they find out why, and tell the client.
PAUSE_SECONDS = 1.0
# While there are turns to wait for, one ends within this time, or else none is waited for.
STUCK_SECONDS = 0.25


class NoConnectionError(Exception):
    """No connection can be had: none could be opened a moment ago, or a pooler is between here and the server."""


class LoopConnection(psycopg.AsyncConnection[Any]):
    """use_until: on the monotonic clock. only_cursor: of all statements, because a new one for each takes time."""

    use_until = 0.0
    only_cursor: psycopg.AsyncCursor[Any]

    @property
    def is_usable(self) -> bool:
        is_idle = self.info.transaction_status == TransactionStatus.IDLE
        return is_idle and time.monotonic() < self.use_until


class LoopConnections:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self._turns = Turns("lookups", loop_connections())
        self._idle: list[LoopConnection] = []
        self._none_until = 0.0
        self._waiting: set[asyncio.Future[None]] = set()
        self._last_end = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def first_row(self, client: str, statement: bytes, parameters: Sequence[Any]) -> Any:
        """Return the first row of a statement as a tuple; None if it has none. client: who takes a turn.

        Raises NoConnectionError, PoolFullError, psycopg.Error.
        """
        if time.monotonic() < self._none_until:
            raise NoConnectionError
        await self._turn(client)
        conn: LoopConnection | None = None
        try:
            conn = self._idle.pop() if self._idle else await self._opened()
            await conn.only_cursor.execute(statement, parameters)
            return await conn.only_cursor.fetchone()
        finally:
            if conn is not None:
                await self._put_back(conn)
            self._last_end = time.monotonic()
            self._turns.end()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _turn(self, client: str) -> None:
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.wait(client, partial(self._begin, begun))
        if begun.done():
            return
        self._waiting.add(begun)
        if self._watch is None:
            self._watch = begun.get_loop().call_later(STUCK_SECONDS, self._check)
        try:
            await begun
        finally:
            self._waiting.discard(begun)

    def _begin(self, begun: asyncio.Future[None]) -> None:
        if begun.done():
            # Nobody waits for it any more. Later, because the turn counts only once this has returned.
            begun.get_loop().call_soon(self._turns.end)
        else:
            begun.set_result(None)

    def _check(self) -> None:
        """Leave what waits to threads if all connections are stuck."""
        self._watch = None
        if not self._waiting:
            return
        if time.monotonic() - self._last_end > STUCK_SECONDS:
            self._none_until = time.monotonic() + PAUSE_SECONDS
            for begun in self._waiting:
                if not begun.done():
                    begun.set_exception(NoConnectionError())
        else:
            self._watch = asyncio.get_running_loop().call_later(STUCK_SECONDS, self._check)

    async def _put_back(self, conn: LoopConnection) -> None:
        if conn.is_usable:
            self._idle.append(conn)
        else:
            await conn.close()

    async def _opened(self) -> LoopConnection:
        try:
            return await self._connect()
        except psycopg.Error:
            self._none_until = time.monotonic() + PAUSE_SECONDS
            raise

    async def _connect(self) -> LoopConnection:
        given = plain_parameters()
        ours = connection_options(timezone="UTC", statement_timeout=f"{settings.TIDEGAUGE_STATEMENT_TIMEOUT_MS:d}")
        options = f"{given.pop('options', '')} {ours}".strip()
        conn = await LoopConnection.connect(**given, options=options, autocommit=True)
        conn.only_cursor = conn.cursor()
        conn.use_until = time.monotonic() + settings.DATABASES["default"]["CONN_MAX_AGE"]
        # A pooler reports a process id that it has made up.
        row = await (await conn.execute("SELECT pg_backend_pid()")).fetchone()
        if cast(Any, row)[0] != conn.info.backend_pid:
            await conn.close()
            self._none_until = float("inf")
            raise NoConnectionError
        return conn
