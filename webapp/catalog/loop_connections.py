"""Connections of the event loop to the primary: a few, for which the clients of all lookups take turns.

They have what Django's connections have: the session settings, the time limit of statements, prepared statements, an
age. They are in autocommit mode, because each statement sees one snapshot anyway. Through a connection pooler there are
none, because what they set at their start would apply to other clients.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import psycopg
from django.conf import settings
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.waiting import Ready, Wait

from tidegauge.state_backends.session import connection_options
from tidegauge.webapp.catalog.loop_turns import LoopTurns, NoConnectionError
from tidegauge.webapp.catalog.readers import plain_parameters
from tidegauge.webapp.core.pools import loop_connections

Result = TypeVar("Result")


class LoopConnection(psycopg.AsyncConnection[Any]):
    """use_until: on the monotonic clock. only_cursor: of all statements, because a new one for each takes time.

    The event loop keeps watching the socket between statements, because psycopg registers the socket and a timer again
    for each statement.
    """

    use_until = 0.0
    only_cursor: psycopg.AsyncCursor[Any]
    _watched: int | None = None
    _arrived: asyncio.Future[None] | None = None

    @property
    def is_watched(self) -> bool:
        return self._watched is not None

    @property
    def is_usable(self) -> bool:
        is_idle = self.info.transaction_status == TransactionStatus.IDLE
        return is_idle and time.monotonic() < self.use_until

    async def wait(self, gen: PQGen[Result], *args: Any, **options: Any) -> Result:
        try:
            asked = next(gen)
            while asked == Wait.R:
                await self._next_arrival()
                asked = gen.send(Ready.R)
        except StopIteration as end:
            return cast(Result, end.value)
        except asyncio.CancelledError:
            await self.close()  # because the answer may still come
            raise
        return await super().wait(_continued(gen, asked), *args, **options)

    async def close(self) -> None:
        self._unwatch()  # first, because the next socket may have the same number
        await super().close()

    async def _next_arrival(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watched is None:
            self._watched = self.pgconn.socket
            loop.add_reader(self._watched, self._notice)
        self._arrived = loop.create_future()
        try:
            await self._arrived
        finally:
            self._arrived = None

    def _notice(self) -> None:
        if self._arrived is None:
            self._unwatch()  # nobody reads, and the loop would call again and again: the server has ended the session
        elif not self._arrived.done():
            self._arrived.set_result(None)

    def _unwatch(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None


class LoopConnections:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self._turns = LoopTurns(loop_connections())
        self._idle: list[LoopConnection] = []

    async def first_row(self, client: str, statement: bytes, parameters: Sequence[Any]) -> Any:
        """Return the first row of a statement as a tuple; None if it has none. client: who takes a turn.

        Raises NoConnectionError, PoolFullError, psycopg.Error.
        """
        await self._turns.begin(client)
        conn: LoopConnection | None = None
        try:
            conn = self._idle.pop() if self._idle else await self._opened()
            await conn.only_cursor.execute(statement, parameters)
            return await conn.only_cursor.fetchone()
        finally:
            if conn is not None:
                await self._put_back(conn)
            self._turns.end(client)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _put_back(self, conn: LoopConnection) -> None:
        if conn.is_usable:
            self._idle.append(conn)
        else:
            await conn.close()

    async def _opened(self) -> LoopConnection:
        try:
            return await self._connect()
        except psycopg.Error:
            self._turns.pause()
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
            self._turns.pause(float("inf"))
            raise NoConnectionError
        return conn


def _continued(gen: PQGen[Result], asked: Wait) -> PQGen[Result]:
    """Return the rest of a generator of psycopg, which has asked for something and waits for the answer."""
    try:
        while True:
            asked = gen.send((yield asked))
    except StopIteration as end:
        return cast(Result, end.value)
