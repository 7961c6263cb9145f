"""The feed of one question: read once for all who ask it and stand at the same batch, however many they are."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from state_backends.errors import BackendUnavailable, MovedOnError, UnknownStateError
from webapp.api.errors import DATABASE_GONE
from webapp.events import deltas
from webapp.events.broker import EVERY_PIPELINE, CommitSignals
from webapp.events.deltas import Delta
from webapp.events.subscriptions import CommitsSubscription, Subscription
from webapp.states import readers

logger = logging.getLogger(__name__)

# What passes: the database or Redis is away, or is faster than we read.
PASSING = (*DATABASE_GONE, BackendUnavailable, MovedOnError)
# The state was made anew since its statements were composed, or is gone.
REMADE = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, UnknownStateError)

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0

# The ledger tells of a commit before a store beside it shows that batch. Driver and store are that quick, or broken.
PUBLISHED_EVERY_SECONDS, PUBLISHED_WITHIN_SECONDS = 0.05, 5.0

# A beginning is shared by those who come at about the same time.
FIRST_STEP_SECONDS = 1.0

InThread = Callable[[Callable[[], Delta]], Awaitable[Delta]]


class Feed:
    """in_thread: runs a read beside the event loop. Its tasks are shared: wait for them, do not cancel them."""

    def __init__(self, question: Subscription, tides: CommitSignals, in_thread: InThread) -> None:
        self.question = question
        self.pipeline = EVERY_PIPELINE if isinstance(question, CommitsSubscription) else question.pipeline
        self.clients = 0
        self._tides = tides
        self._in_thread = in_thread
        self._reads: dict[tuple[Any, int], asyncio.Task[Delta]] = {}

    def first(self, last_txid: int | None) -> "asyncio.Task[Delta]":
        task = self._shared(("first", last_txid), lambda: self._first(last_txid))
        asyncio.get_running_loop().call_later(FIRST_STEP_SECONDS, self._forget, task)
        return task

    def after(self, stand: Any) -> "asyncio.Task[Delta]":
        """Return the step from a stand, as of now: whoever compares counts must have taken his before."""
        return self._shared(("after", stand), lambda: self._next(stand))

    def _shared(self, asked: Any, read: Callable[[], Delta]) -> "asyncio.Task[Delta]":
        count = self._tides.count(self.pipeline)
        self._reads = {key: task for key, task in self._reads.items() if key[1] == count}
        task = self._reads.get((asked, count))
        if task is None:
            task = self._reads[asked, count] = asyncio.create_task(self._read(read))
        return task

    def _forget(self, task: "asyncio.Task[Delta]") -> None:
        self._reads = {key: kept for key, kept in self._reads.items() if kept is not task}

    def _first(self, last_txid: int | None) -> Delta:
        if isinstance(self.question, CommitsSubscription):
            return deltas.commits_delta(self.question, None)
        return deltas.first_delta(self.question, last_txid)

    def _next(self, stand: Any) -> Delta:
        if isinstance(self.question, CommitsSubscription):
            return deltas.commits_delta(self.question, stand)
        return deltas.next_delta(self.question, stand)

    async def _read(self, read: Callable[[], Delta]) -> Delta:
        """Raises UnknownStateError for a state that is gone."""
        step = await self._read_at_last(read)
        waited = 0.0
        while self._is_behind(step) and waited < PUBLISHED_WITHIN_SECONDS:
            await asyncio.sleep(PUBLISHED_EVERY_SECONDS)
            waited += PUBLISHED_EVERY_SECONDS
            step = await self._read_at_last(read)
        return step

    def _is_behind(self, step: Delta) -> bool:
        if isinstance(self.question, CommitsSubscription) or step.more:
            return False
        return step.stand.txid < self._tides.txid(self.pipeline)

    async def _read_at_last(self, read: Callable[[], Delta]) -> Delta:
        pause, remade = PAUSE_SECONDS, False
        while True:
            try:
                return await self._in_thread(read)
            except PASSING as error:
                logger.warning("%s cannot be read (%s); trying again", self.question, type(error).__name__)
            except REMADE:
                if remade:
                    raise
                readers.forget()
                remade = True
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
