"""Membership: which processes are alive, since when and at which batch, as they report it themselves.

For display only. The ledger's lock and fence decide who may write a pipeline's states; nothing depends on this list.

After Pravega's MembershipSynchronizer. Time is logical: every heartbeat of any member adds one to it, so clocks need
not agree. The time-outs are in the shared state, so that all members apply the same ones. `apply` assigns the time of
a heartbeat, so a member with an outdated copy cannot write one in the past, and the first heartbeat is no special case.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString
from uuid import uuid4

import psycopg

from tidegauge.state_backends.errors import ContentionError
from tidegauge.state_backends.synchronizer.revisioned_stream import Entry
from tidegauge.state_backends.synchronizer.synchronizer import Apply, Copy, StateSynchronizer, after, compact_log

NAME = "members"

HEARTBEAT_SECONDS = 2.0

# Minimum time between two appends; shorter, because a caller with a period of HEARTBEAT_SECONDS may call a bit early.
PAUSE_SECONDS = 0.9 * HEARTBEAT_SECONDS

# Time-outs as in Pravega's sample, in heartbeats per member, so that they do not depend on the number of members.
NO_MEMBERS: dict[str, Any] = {"members": {}, "vector_time": 0, "unhealthy_after": 5, "dead_after": 10}

# About three minutes of one member; bounds what a new reader has to read.
COMPACT_AFTER_RECORDS = 100


@dataclass(frozen=True)
class Member:
    """One process. role: driver or worker. pipeline, txid: of a driver, its pipeline and committed batch.

    healthy: whether it sent one of the last few heartbeats.
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
    """This process as a member.

    conn: in autocommit mode. pipeline: the pipeline of a driver, which holds its lock: its earlier drivers have ended.
    clock: seconds, for the time between heartbeats.
    """

    def __init__(
        self,
        conn: psycopg.Connection,
        role: str,
        pipeline: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Random and not the process id, because ids are reused, in containers right after a restart.
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
        """Become a member, and remove earlier drivers of the same pipeline."""
        self._members.initialize(NO_MEMBERS)
        self._members.update_state(self._replace)
        self._next_beat = self._clock() + PAUSE_SECONDS

    def heartbeat(self) -> None:
        """Send a heartbeat if one is due, and remove members whose time-out has passed.

        May be called often: it appends once in HEARTBEAT_SECONDS at most.
        """
        if self._clock() < self._next_beat:
            return
        self._next_beat = self._clock() + PAUSE_SECONDS
        self._members.update_state_unconditionally([self._beat()])
        self._members.fetch_updates()
        # A conflict is ignored, because it means that another member has done the same.
        with suppress(ContentionError):
            self._remove_dead()
            self._compact_a_long_log()

    def leave(self) -> None:
        """Stop being a member."""
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
            "SELECT committed_txid FROM tidegauge.pipeline WHERE name = %s", [self._facts["pipeline"]]
        ).fetchone()
        return row[0] if row else None

    def _remove_dead(self) -> None:
        def declare(state: dict[str, Any]) -> list[dict[str, Any]]:
            # Never itself, because this process is alive.
            found = [name for name in dead(state) if name != self.name]
            return [{"dead": found}] if found else []

        if dead(self._members.state):
            self._members.update_state(declare)

    def _compact_a_long_log(self) -> None:
        def shortened(state: Any) -> Any:
            # Checked on every attempt, because another member may have compacted meanwhile.
            return state if self._members.records_since_compaction > COMPACT_AFTER_RECORDS else None

        if self._members.records_since_compaction > COMPACT_AFTER_RECORDS:
            self._members.compact(shortened)


def members(conn: psycopg.Connection) -> list[Member]:
    """Return the members, drivers first. If nobody sends heartbeats, logical time stops, and no member is healthy."""
    seen = read_current(conn, NAME, apply)
    if seen is None:
        return []
    state = seen.state
    silent = seen.idle_seconds > state["unhealthy_after"] * HEARTBEAT_SECONDS
    found = [_member(name, facts, not silent and healthy(state, name)) for name, facts in state["members"].items()]
    return sorted(found, key=lambda member: (member.role, member.pipeline or "", member.since))


def apply(state: dict[str, Any], update: dict[str, Any]) -> dict[str, Any]:
    """Return the members after an update. An unknown update, of a later release, changes nothing."""
    match update:
        case {"heartbeat": name, "facts": facts}:
            now = state["vector_time"] + 1
            return state | {"members": state["members"] | {name: facts | {"time": now}}, "vector_time": now}
        case {"leave": list(names)}:
            return _without(state, names)
        case {"dead": list(names)}:
            # Checked again, because a member may have sent a heartbeat since another one found it dead.
            return _without(state, [name for name in dead(state) if name in names])
    return state


def healthy(state: dict[str, Any], name: str) -> bool:
    """Return whether a member sent a heartbeat within `unhealthy_after`; True for an unknown member."""
    member = state["members"].get(name)
    return member is None or member["time"] >= state["vector_time"] - state["unhealthy_after"] * len(state["members"])


def dead(state: dict[str, Any]) -> list[str]:
    """Return the members without a heartbeat within `dead_after`."""
    oldest = state["vector_time"] - state["dead_after"] * len(state["members"])
    return [name for name, member in state["members"].items() if member["time"] < oldest]


def _without(state: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return state | {"members": {name: member for name, member in state["members"].items() if name not in names}}


def _member(name: str, facts: dict[str, Any], is_healthy: bool) -> Member:
    shown = {field: facts[field] for field in ("role", "host", "pid", "pipeline", "txid")}
    return Member(name=name, since=datetime.fromisoformat(facts["since"]), healthy=is_healthy, **shown)


@dataclass(frozen=True)
class CurrentState:
    """The newest state of a log. idle_seconds: since the last append, by the database's clock."""

    state: Any
    revision: int
    idle_seconds: float


def read_current(conn: psycopg.Connection, name: str, apply: Apply) -> CurrentState | None:
    """Return the newest state of a log without becoming a client of it; None if there is no such log, or it is empty.

    One statement that writes nothing and reads the log at one moment, whatever is appended or truncated meanwhile.
    """
    rows = conn.execute(_FROM_THE_MARK, {"name": name}).fetchall()
    copy: Copy | None = None
    for revision, record, _ in rows:
        copy = after(copy, Entry(revision, json.loads(record)), apply, name)
    return CurrentState(copy.state, copy.revision, rows[-1][2]) if copy else None


def compact_logs(conn: psycopg.Connection) -> dict[str, int]:
    """Compact every synchronizer log. Returns the number of records dropped, by the log's name.

    The members' log is replaced by its current value. Other logs are only truncated to the newest value that a client
    has compacted, because only their clients can apply their updates.
    """
    names = conn.execute("SELECT name FROM tidegauge.synchronizer ORDER BY name").fetchall()
    return {name: compact_log(conn, name, apply if name == NAME else None) for (name,) in names}


_FROM_THE_MARK: LiteralString = (
    "SELECT l.revision + 1, l.record::text, extract(epoch FROM clock_timestamp() - s.appended_at)::float8 "
    "FROM tidegauge.synchronizer s JOIN tidegauge.synchronizer_log l ON l.synchronizer = s.name "
    "AND l.revision >= greatest(s.mark, s.oldest) WHERE s.name = %(name)s ORDER BY l.revision"
)
