"""Commit signals, which wake the streams after a commit, and reads that all clients at the same cursor share.

One connection listens for the notification of every commit. A stream takes its pipeline's signal count before a read
and compares it afterwards, so a commit during the read is not missed. Notifications sent while the connection was down
are lost, so after every reconnect, and every CHECK_SECONDS, all streams read again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import orjson
import psycopg
from psycopg import sql

from tidegauge.state_backends.errors import BackendUnavailable, FindingError, MovedOnError, UnknownStateError
from tidegauge.state_backends.ledger.batch_ledger import CHANNEL
from tidegauge.webapp.api.errors import DATABASE_GONE
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.events import deltas
from tidegauge.webapp.events.deltas import Delta, EventId
from tidegauge.webapp.events.subscriptions import CommitsSubscription, Subscription

logger = logging.getLogger(__name__)

# Stands for all pipelines where a name is expected; no pipeline has an empty name.
EVERY_PIPELINE = ""

# The pause between two attempts to connect or to read doubles from these values up to the last one.
CONNECT_PAUSE_SECONDS, READ_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 0.25, 5.0
# After this time without a notification the connection is tested with a query, because a dead one may report no error.
CHECK_SECONDS, CHECK_TIMEOUT_SECONDS = 15.0, 5.0

# The ledger notifies of a commit before another store shows the batch, usually some milliseconds later.
PUBLISH_POLL_SECONDS, PUBLISH_TIMEOUT_SECONDS = 0.05, 5.0

# Clients that connect within this time share their first read.
FIRST_DELTA_SECONDS = 1.0

# Read again later: the database or Redis is unavailable, or batches are committed faster than we read.
TRANSIENT = (*DATABASE_GONE, BackendUnavailable, FindingError, MovedOnError)
# Read again with new statements: the state's table was replaced; or the state is dropped.
REPLACED = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, UnknownStateError)

Wake = Callable[[], None]
InThread = Callable[[Callable[[], Delta]], Awaitable[Delta]]


class CommitSignals:
    """Counts commits per pipeline and wakes the streams. Not thread-safe: use it only in the event loop's thread."""

    def __init__(self) -> None:
        self._commits: Counter[str] = Counter()
        self._resyncs = 0
        self._txids: dict[str, int] = {}
        self._subscribers: dict[str, set[Wake]] = {}

    def count(self, pipeline: str) -> int:
        return self._commits[pipeline] + self._resyncs

    def txid(self, pipeline: str) -> int:
        """Return the last committed batch; 0 if it is not known."""
        return self._txids.get(pipeline, 0)

    def committed(self, pipeline: str, txid: int = 0) -> None:
        """Count a commit. txid: its batch, 0 if it is not known."""
        self._txids[pipeline] = txid
        for each in {pipeline, EVERY_PIPELINE}:
            self._commits[each] += 1
            self._wake(each)

    def status_changed(self) -> None:
        """Count a change that only subscribers of every pipeline see."""
        self._commits[EVERY_PIPELINE] += 1
        self._wake(EVERY_PIPELINE)

    def resync(self) -> None:
        """Make all streams read, because notifications may have been lost."""
        self._resyncs += 1
        self._txids.clear()
        for pipeline in list(self._subscribers):
            self._wake(pipeline)

    def subscribe(self, pipeline: str, wake: Wake) -> None:
        self._subscribers.setdefault(pipeline, set()).add(wake)

    def unsubscribe(self, pipeline: str, wake: Wake) -> None:
        subscribers = self._subscribers[pipeline]
        subscribers.discard(wake)
        if not subscribers:
            del self._subscribers[pipeline]

    def has_subscribers(self, pipeline: str) -> bool:
        return pipeline in self._subscribers

    def _wake(self, pipeline: str) -> None:
        for wake in list(self._subscribers.get(pipeline, ())):
            wake()


class CommitListener:
    """Turns the database's notifications into commit signals. connection: psycopg's parameters."""

    def __init__(self, connection: dict[str, Any], signals: CommitSignals) -> None:
        self._connection = connection
        self._signals = signals
        self._pause = CONNECT_PAUSE_SECONDS

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            try:
                await self._listen()
            except (psycopg.Error, OSError, TimeoutError) as error:
                logger.warning("cannot listen for commits (%s); trying again", type(error).__name__)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)

    async def _listen(self) -> None:
        connecting = psycopg.AsyncConnection.connect(**self._connection, autocommit=True)
        conn = await asyncio.wait_for(connecting, CHECK_TIMEOUT_SECONDS)
        try:
            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
            self._pause = CONNECT_PAUSE_SECONDS
            while True:
                self._signals.resync()
                async for notification in conn.notifies(timeout=CHECK_SECONDS):
                    self._signal(notification.payload)
                await asyncio.wait_for(conn.execute("SELECT 1"), CHECK_TIMEOUT_SECONDS)
        finally:
            await conn.close()

    def _signal(self, payload: str) -> None:
        commit: Any = None
        with suppress(orjson.JSONDecodeError):
            commit = orjson.loads(payload)
        # Without a txid it is the notification of a swap.
        match commit:
            case {"pipeline": str(pipeline), "txid": int(txid)}:
                self._signals.committed(pipeline, txid)
            case {"pipeline": str(pipeline)}:
                self._signals.committed(pipeline)
            case _:
                self._signals.resync()


class SharedReads:
    """Reads the deltas of one subscription, once per commit and cursor for all its clients.

    in_thread: runs a read outside the event loop. The tasks returned are shared: wait for them, do not cancel them.
    """

    def __init__(self, subscription: Subscription, signals: CommitSignals, in_thread: InThread) -> None:
        self.subscription = subscription
        self.pipeline = EVERY_PIPELINE if isinstance(subscription, CommitsSubscription) else subscription.pipeline
        self.clients = 0
        self._signals = signals
        self._in_thread = in_thread
        self._reads: dict[tuple[Any, int], asyncio.Task[Delta]] = {}

    def first(self, last_id: EventId | None) -> "asyncio.Task[Delta]":
        task = self._shared(("first", last_id), lambda: self._first(last_id))
        asyncio.get_running_loop().call_later(FIRST_DELTA_SECONDS, self._forget, task)
        return task

    def after(self, cursor: Any) -> "asyncio.Task[Delta]":
        """Return the delta after a cursor, as of now. Take the signal count before, so that no commit is missed."""
        return self._shared(("after", cursor), lambda: self._next(cursor))

    def _shared(self, position: Any, read: Callable[[], Delta]) -> "asyncio.Task[Delta]":
        count = self._signals.count(self.pipeline)
        self._reads = {key: task for key, task in self._reads.items() if key[1] == count}
        task = self._reads.get((position, count))
        if task is None:
            task = self._reads[position, count] = asyncio.create_task(self._read(read))
        return task

    def _forget(self, task: "asyncio.Task[Delta]") -> None:
        self._reads = {key: kept for key, kept in self._reads.items() if kept is not task}

    def _first(self, last_id: EventId | None) -> Delta:
        if isinstance(self.subscription, CommitsSubscription):
            return deltas.commits_delta(self.subscription, None)
        return deltas.first_delta(self.subscription, last_id)

    def _next(self, cursor: Any) -> Delta:
        if isinstance(self.subscription, CommitsSubscription):
            return deltas.commits_delta(self.subscription, cursor)
        return deltas.next_delta(self.subscription, cursor)

    async def _read(self, read: Callable[[], Delta]) -> Delta:
        """Read until the store shows the last commit. Raises UnknownStateError if the state was dropped."""
        delta = await self._read_with_retries(read)
        waited = 0.0
        while self._is_behind(delta) and waited < PUBLISH_TIMEOUT_SECONDS:
            await asyncio.sleep(PUBLISH_POLL_SECONDS)
            waited += PUBLISH_POLL_SECONDS
            delta = await self._read_with_retries(read)
        return delta

    def _is_behind(self, delta: Delta) -> bool:
        if isinstance(self.subscription, CommitsSubscription) or delta.more:
            return False
        return delta.cursor.txid < self._signals.txid(self.pipeline)

    async def _read_with_retries(self, read: Callable[[], Delta]) -> Delta:
        pause, was_replaced = READ_PAUSE_SECONDS, False
        while True:
            try:
                return await self._in_thread(read)
            except TRANSIENT as error:
                logger.warning("cannot read %s (%s); trying again", self.subscription, type(error).__name__)
            except REPLACED:
                if was_replaced:
                    raise
                readers.clear_cache()
                was_replaced = True
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)
