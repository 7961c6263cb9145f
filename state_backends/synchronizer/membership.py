"""Membership: which processes are alive, since when and at which batch, by their own word.

For people to look at. Who may write a pipeline's states is decided by the ledger's lock and fence alone, and no member
gains or loses anything by what stands here.

After Pravega's MembershipSynchronizer. Time is logical, a heartbeat of anybody moves it on by one, so that no clocks
need agree; how long a silence may be stands in the shared state, so that all judge alike. `apply` gives a heartbeat its
time: a member that is behind cannot beat in the past, and the first one of all needs nothing to go by.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg

from state_backends.synchronizer.errors import ContentionError
from state_backends.synchronizer.glance import glance
from state_backends.synchronizer.synchronizer import StateSynchronizer

NAME = "members"

HEARTBEAT_SECONDS = 2.0

# Between two appends; one who calls every HEARTBEAT_SECONDS may come a little early.
PAUSE_SECONDS = 0.9 * HEARTBEAT_SECONDS

# The sample's: in heartbeats of each member, so that it takes as long whatever their number is.
NOBODY: dict[str, Any] = {"members": {}, "vector_time": 0, "unhealthy_after": 5, "dead_after": 10}

# About three minutes of one member; a new reader reads no more than these.
COMPACT_AFTER_RECORDS = 100


@dataclass(frozen=True)
class Member:
    """One process. role: driver or worker. pipeline, txid: what a driver serves, and its committed batch.

    healthy: heard of in the last few heartbeats.
    """

    name: str
    role: str
    host: str
    pid: int
    since: datetime
    pipeline: str | None
    txid: int | None
    healthy: bool


class Membership:
    """This process among the members.

    conn: in autocommit mode. pipeline: what a driver serves, holding its lock; whoever drove it before is gone.
    clock: seconds, for the pause between heartbeats.
    """

    def __init__(
        self,
        conn: psycopg.Connection,
        role: str,
        pipeline: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # A process number comes again, in a container even at once.
        self.name = f"{role}-{uuid4().hex[:12]}"
        self._facts = {
            "role": role,
            "pipeline": pipeline,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(),
        }
        self._conn = conn
        self._clock = clock
        self._next_beat = clock()
        self._members = StateSynchronizer(conn, NAME, apply)

    def join(self) -> None:
        """Become a member, in the place of an earlier driver of the same pipeline."""
        self._members.initialize(NOBODY)
        self._members.update_state(self._replace)
        self._next_beat = self._clock() + PAUSE_SECONDS

    def heartbeat(self) -> None:
        """Say that this process lives, if it is time to; declare others dead that have long been silent.

        Often called, rarely at work: twice or three times a second costs one append every HEARTBEAT_SECONDS.
        """
        if self._clock() < self._next_beat:
            return
        self._next_beat = self._clock() + PAUSE_SECONDS
        self._members.update_state_unconditionally([self._beat()])
        self._members.fetch_updates()
        # Whoever was quicker has done it.
        with suppress(ContentionError):
            self._bury_the_dead()
            self._compact_a_long_log()

    def leave(self) -> None:
        """End in good order."""
        self._members.update_state_unconditionally([{"leave": [self.name]}])

    def _replace(self, state: dict[str, Any]) -> Iterator[dict[str, Any]]:
        role, pipeline = self._facts["role"], self._facts["pipeline"]
        replaced = [
            n for n, m in state["members"].items() if pipeline and (m["role"], m["pipeline"]) == (role, pipeline)
        ]
        if replaced:
            yield {"leave": replaced}
        yield self._beat()

    def _beat(self) -> dict[str, Any]:
        return {"heartbeat": self.name, "facts": self._facts | {"txid": self._committed_txid()}}

    def _committed_txid(self) -> int | None:
        row = self._conn.execute(
            "SELECT committed_txid FROM tidemark.pipeline WHERE name = %s", [self._facts["pipeline"]]
        ).fetchone()
        return row[0] if row else None

    def _bury_the_dead(self) -> None:
        def declare(state: dict[str, Any]) -> list[dict[str, Any]]:
            # Never oneself: whoever can say so is alive.
            found = [name for name in dead(state) if name != self.name]
            return [{"dead": found}] if found else []

        if dead(self._members.state):
            self._members.update_state(declare)

    def _compact_a_long_log(self) -> None:
        def shortened(state: Any) -> Any:
            # Run again, it sees that another member has compacted meanwhile.
            return state if self._members.records_since_compaction > COMPACT_AFTER_RECORDS else None

        if self._members.records_since_compaction > COMPACT_AFTER_RECORDS:
            self._members.compact(shortened)


def members(conn: psycopg.Connection) -> list[Member]:
    """Return the members, drivers first. Where all have fallen silent, so that time stands still, none is healthy."""
    seen = glance(conn, NAME, apply)
    if seen is None:
        return []
    state = seen.state
    silent = seen.idle_seconds > state["unhealthy_after"] * HEARTBEAT_SECONDS
    found = [_member(name, facts, not silent and healthy(state, name)) for name, facts in state["members"].items()]
    return sorted(found, key=lambda member: (member.role, member.pipeline or "", member.since))


def apply(state: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """Return the members after an update. One of a kind that a later release may write changes nothing."""
    match update:
        case {"heartbeat": name, "facts": facts}:
            now = state["vector_time"] + 1
            return state | {"members": state["members"] | {name: facts | {"time": now}}, "vector_time": now}
        case {"leave": list(names)}:
            return _without(state, names)
        case {"dead": list(names)}:
            # One that was heard of since is not dead.
            return _without(state, [name for name in dead(state) if name in names])
    return state


def healthy(state: dict[str, Any], name: str) -> bool:
    """Tell whether a member was heard of lately; of one that is unknown nothing bad is known."""
    member = state["members"].get(name)
    return member is None or member["time"] >= state["vector_time"] - state["unhealthy_after"] * len(state["members"])


def dead(state: dict[str, Any]) -> list[str]:
    """Return the members that have been silent for too long to come back."""
    oldest = state["vector_time"] - state["dead_after"] * len(state["members"])
    return [name for name, member in state["members"].items() if member["time"] < oldest]


def _without(state: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return state | {"members": {name: member for name, member in state["members"].items() if name not in names}}


def _member(name: str, facts: dict[str, Any], is_healthy: bool) -> Member:
    shown = {field: facts[field] for field in ("role", "host", "pid", "pipeline", "txid")}
    return Member(name=name, since=datetime.fromisoformat(facts["since"]), healthy=is_healthy, **shown)
