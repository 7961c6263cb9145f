"""Sessions: the events of a key with no pause of `gap` or more between them, exact for any order of arrival.

A session is open, and can be looked up, until the watermark has passed its end plus the gap and the allowed lateness:
after that no event that is in time can join it. Before that, an event may join it, or merge it with another one. It is
closed once and then never changes. An event that comes later cannot reopen it, so it starts a new session or joins an
open one, and is counted there as late. So no event is lost, and a session is exact for all events that came in time; a
session with late events may continue one that was closed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegauge.pipelines.declare.event_time import interval
from tidegauge.pipelines.declare.functions import BatchState, Collector
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.operators.keyed import (
    LATE,
    TICK,
    after,
    as_text,
    check_can_hold,
    fold_by_key,
    has_passed,
    timed,
)
from tidegauge.pipelines.spark.session import spark_type
from tidegauge.state_backends.spec.state_spec import StateSpec

MEASURED = {"started": "timestamp", "ended": "timestamp", "events": "bigint", "late": "bigint"}


def closed_sessions(
    stream: Stream,
    open_sessions: StateSpec,
    time: str,
    gap: timedelta,
    *,
    allowed_lateness: str | timedelta = timedelta(),
) -> Stream:
    """Return the sessions as they close: the key, `started`, `ended` (first and last event), `events`, `late`.

    The stream needs a watermark. open_sessions: the state of open sessions; opaque, with value="jsonb" and no ttl; its
    key is the session's. A session with late events may start at the same time as one that was closed before; add them
    up. Tuples without a time are left out.
    allowed_lateness: how long after its end and the gap a session stays open, by the watermark. If the stream's own
    watermark has the same allowed_lateness, which leaves out later events, all sessions are exact. `late` counts the
    events behind the watermark, allowed or not.
    Raises PipelineError for a gap of 0 or less.
    """
    check_can_hold(open_sessions)
    if gap < TICK:
        raise PipelineError(f"state {open_sessions.name!r}: the gap of its sessions is {gap}; give one above 0")
    key = tuple(open_sessions.key)
    tuples = timed(stream, time).transform(lambda events: runs(events, key, time, gap))
    emits = {name: spark_type(kind) for name, kind in open_sessions.key.items()} | MEASURED
    updater = Sessions(key, gap, interval(allowed_lateness))
    stored = tuples.partition_persist(open_sessions, updater, emits=emits, due="due")
    return stored.new_values_stream()


def runs(events: DataFrame, key: Sequence[str], time: str, gap: timedelta) -> DataFrame:
    """Return the events of a key in runs, each of which is within one session: `key`, MEASURED.

    A run has the events in a slot of `gap`, because two of these are less than that apart. So Spark counts most events,
    and Python gets one row a run.
    """
    at = F.unix_micros(events[time])
    return events.groupBy(*key, at - F.pmod(at, F.lit(gap // TICK))).agg(
        F.min(time).alias("started"),
        F.max(time).alias("ended"),
        F.count_if(LATE).alias(LATE),
        F.count("*").alias("events"),
    ).select(*key, *MEASURED)  # fmt: skip


@dataclass(frozen=True)
class Session:
    """start, end: its first and last event. late: how many of its events came after the watermark."""

    start: datetime
    end: datetime
    events: int
    late: int

    def joined(self, later: "Session") -> "Session":
        end = max(self.end, later.end)
        return Session(self.start, end, self.events + later.events, self.late + later.late)


def merged(sessions: Iterable[Session], gap: timedelta) -> list[Session]:
    """Merge sessions that are less than `gap` apart, and return all in order."""
    found: list[Session] = []
    for session in sorted(sessions, key=lambda session: session.start):
        if found and session.start < after(found[-1].end, gap):
            found[-1] = found[-1].joined(session)
        else:
            found.append(session)
    return found


@dataclass(frozen=True)
class Sessions:
    """Keeps the open sessions of each key. key: the state's key columns. lateness: how much later they close.

    Takes `runs`; emits the key and the measures of a session that closes. A value: `{"sessions": [{"start", "end",
    "events", "late"}, ..], "due": when the first of them closes}`.
    """

    key: tuple[str, ...]
    gap: timedelta
    lateness: timedelta = timedelta()

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        def fold(value: Any, rows: list[Mapping[str, Any]]) -> Any:
            still_open = []
            for session in merged([*_stored(value), *_arrived(rows)], self.gap):
                if has_passed(state.watermark, self._closes(session)):
                    key = (rows[0][name] for name in self.key)
                    collector.emit(*key, session.start, session.end, session.events, session.late)
                else:
                    still_open.append(session)
            return self._value(still_open)

        fold_by_key(state, tuples, self.key, fold)

    def _value(self, sessions: list[Session]) -> Any:
        if not sessions:
            return None
        shown = [vars(each) | {"start": as_text(each.start), "end": as_text(each.end)} for each in sessions]
        return {"sessions": shown, "due": as_text(self._closes(sessions[0]))}

    def _closes(self, session: Session) -> datetime:
        return after(session.end, self.gap + self.lateness)


def _arrived(rows: list[Mapping[str, Any]]) -> list[Session]:
    return [Session(*(row[name] for name in MEASURED)) for row in rows if not row["woken"]]


def _stored(value: Any) -> list[Session]:
    return [
        Session(
            datetime.fromisoformat(each["start"]), datetime.fromisoformat(each["end"]), each["events"], each["late"]
        )
        for each in (value or {"sessions": []})["sessions"]
    ]
