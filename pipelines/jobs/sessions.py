"""Sessions of users: open sessions can be looked up, closed ones are stored with their measures."""

from datetime import timedelta
from pathlib import Path

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.sessions import closed_sessions
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Max, StateSpec, Sum

ACTION = "user string NOT NULL, at timestamp NOT NULL"
GAP = timedelta(minutes=30)

OPEN_SESSIONS = StateSpec("open_sessions", key={"user": "text"}, value="jsonb")
CLOSED_SESSIONS = StateSpec(
    "closed_sessions",
    key={"user": "text", "started": "timestamptz"},
    measures={
        "ended": Max("ended", type="timestamptz"),
        "events": Sum("events", type="bigint"),
        "late": Sum("late", type="bigint"),
    },
    ttl=timedelta(days=90),
)


def sessions(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """Sessions per user, closed after half an hour without an event, from JSON-lines files that land in a folder.

    Events may come ten minutes late; for later ones see pipelines/operators/sessions.py.
    """
    actions = Stream.read(JsonFiles(folder, schema=ACTION, files_per_batch=files_per_batch))
    closed = closed_sessions(actions.with_watermark("at", "10 minutes"), OPEN_SESSIONS, "at", GAP)
    return Pipeline("sessions", [closed.group_by("user", "started").persistent_aggregate(CLOSED_SESSIONS)])
