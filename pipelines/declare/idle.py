"""Idle input: decides when to run an empty batch, so that timers fire while a source is idle.

Only a timer that has become due needs such a batch, so no batch runs between two timers.
"""

from collections.abc import Callable
from datetime import datetime

import psycopg

from tidegauge.pipelines.declare.event_time import EventTime, committed
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import PersistentAggregate
from tidegauge.state_backends.protocols import BackendSession
from tidegauge.state_backends.spec.state_spec import StateSpec


class IdleTimers:
    """The next timer of a pipeline's states, as of the committed batch. Written by the thread that runs batches."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._time = EventTime()
        self._next: datetime | None = None
        self._asked: datetime | None = None  # the timer for which a batch was last requested

    def look(self, conn: psycopg.Connection, name: str, session: Callable[[StateSpec], BackendSession]) -> None:
        """Read the event time after a committed batch, and the next timer. name: the ledger's."""
        if self._pipeline.ticks is None:
            return
        self._time = committed(conn, name)
        times = [session(fed.spec).next_due(fed.due) for fed in self._pipeline.timers if fed.spec and fed.due]
        times += [self._next_closing(fed, session(fed.spec)) for fed in self._pipeline.closing]
        self._next = min((time for time in times if time is not None), default=None)

    def ask(self, now: datetime) -> None:
        """Request a batch if a timer is due at the database's time `now`, once per timer."""
        reached = self._time.watermark_at(self._pipeline.watermarks, now)
        if self._pipeline.ticks is None or self._next is None or reached is None or reached < self._next:
            return
        if self._asked != self._next:
            # Set before the tick, so that no second batch is requested while the first one begins.
            self._asked = self._next
            self._pipeline.ticks.tick()

    def _next_closing(self, fed: PersistentAggregate, session: BackendSession) -> datetime | None:
        assert fed.closing is not None
        first = session.first_from(fed.closing.column, fed.closing.open_from(self._time.watermark))
        return None if first is None else fed.closing.closes_at(first)
