"""Scheduler: runs one of several threads at a time, up to its next point, so that a seed decides how they interleave.

A thread reaches a point whenever it is about to send something to PostgreSQL or Redis; the point is named after the
function of the product that sends it. A thread that waits for a lock is skipped until it has the lock. The same seed
therefore replays the same interleaving, on real servers. A thread may be killed at a point, and then sends nothing
more, like a process that died.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from redis.connection import AbstractConnection

from tests.state_backends.waiting import wait_until_gone

PRODUCT = ("state_backends", "pipelines")
LOOK_SECONDS = 0.002
BLOCKED = "SELECT 1 FROM unnest(%s::int[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0"

# A thread that neither comes to a point nor waits for a lock.
STUCK_SECONDS = 60

_own = threading.local()


class Killed(BaseException):
    """Ends a thread at a point. No `except Exception` may keep it alive."""


class Actor(threading.Thread):
    """A thread under the scheduler. at: the point where it is stopped; None while it runs."""

    def __init__(
        self, scheduler: "Scheduler", name: str, does: Callable[[], object], *, danger: float, pace: float
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.danger, self.pace = danger, pace
        self.at: str | None = None
        self.awaits: Sequence[Actor] = ()
        self.killed = self.ended = False
        self.error: BaseException | None = None
        self.connections: list[psycopg.Connection] = []
        self.pids: list[int] = []  # of the server's processes
        self._scheduler = scheduler
        self._does = does

    def run(self) -> None:
        _own.actor = self
        try:
            self._scheduler.reach("begins")
            self._does()
        except BaseException as error:
            self.error = error
        for conn in self.connections:
            conn.close()
        self._scheduler.end(self)


class Scheduler:
    """Runs actors by a seed. beside: a connection of no actor, to see who waits. kills: of how many actors, at most."""

    def __init__(self, random: Random, beside: psycopg.Connection, kills: int) -> None:
        self.trace: list[str] = []
        self.killed = 0
        self._random = random
        self._kills = kills
        self.actors: list[Actor] = []
        self._changed = threading.Condition()
        self._beside = beside

    def start(self, name: str, does: Callable[[], object], *, danger: float = 0, pace: float = 1) -> Actor:
        """Start an actor, which is stopped at its first point until it is chosen.

        danger: the chance that it dies at a point. pace: how often it is chosen, beside 1 for others.
        """
        actor = Actor(self, name, does, danger=danger, pace=pace)
        with self._changed:
            self.actors.append(actor)
        actor.start()
        return actor

    def endanger(self, danger: float) -> None:
        """Set the chance that the calling actor dies at a point."""
        _own.actor.danger = danger

    def wait_for(self, actors: Sequence[Actor]) -> None:
        """Let the calling actor wait until others have ended."""
        _own.actor.awaits = actors
        self.reach("waits")

    def reach(self, point: str) -> None:
        """Stop the calling actor until it is chosen. Raises Killed where it is killed instead."""
        actor: Actor = _own.actor
        with self._changed:
            if not actor.killed:
                actor.at = point
                self._changed.notify_all()
                self._changed.wait_for(lambda: actor.at is None)
        if actor.killed:
            raise Killed

    def end(self, actor: Actor) -> None:
        with self._changed:
            actor.ended = True
            self._changed.notify_all()

    def run(self) -> None:
        """Choose actors until all have ended."""
        while ready := self._ready():
            victim = self._victim()
            if victim is not None:
                self._kill(victim)
                continue
            [actor] = self._random.choices(ready, [actor.pace for actor in ready])
            self.trace.append(f"{actor.name} resumes at {actor.at}")
            self._let_go(actor)

    def sees(self, conn: psycopg.Connection) -> bool:
        return conn is not self._beside

    def _victim(self) -> Actor | None:
        if self.killed == self._kills:
            return None
        stopped = sorted((each for each in self.actors if each.at is not None), key=lambda actor: actor.name)
        return next((actor for actor in stopped if self._random.random() < actor.danger), None)

    def _kill(self, actor: Actor) -> None:
        self.trace.append(f"{actor.name} dies at {actor.at}")
        self.killed += 1
        actor.killed = True
        self._let_go(actor)
        actor.join()
        for pid in actor.pids:
            wait_until_gone(self._beside, pid)

    def _let_go(self, actor: Actor) -> None:
        with self._changed:
            actor.at = None
            self._changed.notify_all()

    def _ready(self) -> list[Actor]:
        """Return the actors to choose from, once all others have ended, or wait for a lock or for actors to end."""
        began = time.monotonic()
        while True:
            with self._changed:
                alive = [actor for actor in self.actors if not actor.ended]
                running = [actor for actor in alive if actor.at is None]
                if running:
                    self._changed.wait(LOOK_SECONDS)
            ready = [each for each in alive if each.at is not None and all(other.ended for other in each.awaits)]
            if not running or (ready and self._all_locked(running)):
                return sorted(ready, key=lambda actor: actor.name)
            assert time.monotonic() < began + STUCK_SECONDS, [actor.name for actor in running]

    def _all_locked(self, actors: Sequence[Actor]) -> bool:
        # Not what pg_stat_activity says: a process that has got its lock says so a little later.
        return all(self._beside.execute(BLOCKED, [actor.pids]).fetchone() for actor in actors)


@contextmanager
def points_at_every_message(scheduler: Scheduler) -> Iterator[None]:
    """Make a point of each message that an actor sends to a server. Other threads are left alone."""
    wait, send = psycopg.Connection.wait, AbstractConnection.send_packed_command

    def wait_at_point(conn: Any, *given: Any, **named: Any) -> Any:
        actor = getattr(_own, "actor", None)
        if actor is not None and scheduler.sees(conn):
            if conn not in actor.connections:
                actor.connections.append(conn)
                actor.pids.append(conn.info.backend_pid)
            scheduler.reach(_caller())
        return wait(conn, *given, **named)

    def send_at_point(conn: Any, *given: Any, **named: Any) -> Any:
        if getattr(_own, "actor", None) is not None:
            scheduler.reach(_caller())
        return send(conn, *given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Connection, "wait", wait_at_point)
        patch.setattr(AbstractConnection, "send_packed_command", send_at_point)
        yield


def _caller() -> str:
    frame = sys._getframe(2)
    while frame.f_back is not None:
        path = Path(frame.f_code.co_filename)
        if any(part in PRODUCT for part in path.parts) and "tests" not in path.parts:
            return f"{path.stem}.{frame.f_code.co_qualname}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"
