"""Replay of dead letters: requests mark letters, and the state of the last request can be read.

The pipeline's driver takes the marked letters between two batches, into a batch of their own (see
state_backends/dead_letters/replay.py).
"""

import shlex
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction

from tidegauge.state_backends.dead_letters import replay as dead_letter_replay
from tidegauge.state_backends.dead_letters.replay import Choice, Found
from tidegauge.state_backends.errors import TidegaugeError, UnknownPipelineError
from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.catalog import queries, readers

ACTION = "pipeline.replay"


class NothingToReplayError(TidegaugeError):
    """None of the chosen letters can be replayed: choose others."""


class ReplayUnderWayError(TidegaugeError):
    """Letters of the pipeline already wait to be replayed, or are in an open batch: wait until it is committed."""


class NotDrivenError(TidegaugeError):
    """The pipeline has no running driver: start it, or use the command, which leaves the letters to the next driver."""


@dataclass(frozen=True)
class Replay:
    """The last request for a pipeline. letters: how many it marked. waiting: how many no committed batch has counted.

    replayed: how many were counted since, the last of them in batch `txid`. All fields are 0 or None without a request.
    """

    requested_at: datetime | None = None
    requested_by: str = ""
    letters: int = 0
    waiting: int = 0
    replayed: int = 0
    txid: int | None = None

    @property
    def remaining(self) -> int:
        """Letters that are still dead letters, because they still cannot be read, or their batch was undone."""
        return self.letters - self.waiting - self.replayed


def request_replay(*, name: str, choice: Choice, requested_by: str) -> Found:
    """Request a replay by the running driver, as replay_dead_letters does, but only one at a time.

    Raises UnknownPipelineError, ReplayUnderWayError, NothingToReplayError, NotDrivenError.
    """
    with transaction.atomic():
        conn = readers.connection()
        # Held until the commit, so that two requests at once cannot both find that no letter waits.
        conn.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"request a replay of {name}"])
        waiting = queries.fetch(WAITING, {"pipeline": name})[0]["letters"]
        if waiting:
            raise ReplayUnderWayError(
                f"pipeline {name!r}: {waiting} dead letters wait to be replayed or are in the open batch; wait until "
                "it is committed"
            )
        found = replay_dead_letters(name=name, choice=choice, requested_by=requested_by)
        if not found.letters:
            raise NothingToReplayError(
                f"pipeline {name!r}: none of the chosen dead letters can be replayed; {found.without_record} have no "
                f"raw record, and {found.counted} were counted by a partial reprocess"
            )
        # Checked last, so that other reasons for a refusal are reported first; the error rolls the marks back.
        if not queries.pipeline(name).is_driven:
            raise NotDrivenError(
                f"pipeline {name!r} has no running driver; start it and try again, or leave the letters to its next "
                f"driver: `{command(name, choice)}`"
            )
    return found


def replay_dead_letters(*, name: str, choice: Choice, requested_by: str, dry_run: bool = False) -> Found:
    """Request that dead letters of a pipeline's sources are read again; return what was found.

    A running driver takes them at once, in a batch of their own, otherwise the next driver does when it starts.
    Raises UnknownPipelineError.
    """
    names = queries.pipeline_names()
    if name not in names:
        raise UnknownPipelineError.among(name, names)
    with transaction.atomic():
        conn = readers.connection()
        found = dead_letter_replay.find(conn, name, choice)
        if dry_run:
            return found
        [began] = queries.fetch("SELECT clock_timestamp() AS at", {})
        requested = dead_letter_replay.request(conn, name, choice, requested_by)
        chosen = {
            "reason": choice.reason,
            "group": choice.pattern,
            "since": choice.since.isoformat() if choice.since else None,
            "ids": None if choice.ids is None else len(choice.ids),
            "until": choice.until,
        }
        detail = chosen | {"letters": requested, "began": began["at"].isoformat()}
        record(ACTION, f"pipeline {name}", by=requested_by, **detail)
    return replace(found, letters=requested)


def last_replay(pipeline: str) -> Replay:
    """Return the last request for a pipeline in the audit log, and what became of its letters."""
    asked = AuditEntry.objects.filter(action=ACTION, target=f"pipeline {pipeline}").order_by("-id").first()
    if asked is None or "began" not in asked.detail:
        return Replay()
    [row] = queries.fetch(PROGRESS, {"pipeline": pipeline, "began": asked.detail["began"]})
    return Replay(asked.at, asked.actor, asked.detail["letters"], **row)


def command(name: str, choice: Choice) -> str:
    """Return the command that requests the same replay from the next driver."""
    words = ["tidegauge", "replay_dead_letters", name]
    words += ["--group", choice.pattern] if choice.pattern else []
    words += ["--ids", *map(str, choice.ids)] if choice.ids else []
    return shlex.join(words)


WAITING = """
SELECT count(*) AS letters FROM tidegauge.dead_letter l JOIN tidegauge.pipeline p ON p.name = l.pipeline
WHERE l.pipeline = %(pipeline)s AND l.replay_at IS NOT NULL
AND (l.replay_txid IS NULL OR l.replay_txid > p.committed_txid)
"""

PROGRESS = """
SELECT count(*) FILTER (WHERE l.replay_txid <= p.committed_txid) AS replayed,
    count(*) FILTER (WHERE l.replay_txid IS NULL OR l.replay_txid > p.committed_txid) AS waiting,
    max(l.replay_txid) FILTER (WHERE l.replay_txid <= p.committed_txid) AS txid
FROM tidegauge.dead_letter l JOIN tidegauge.pipeline p ON p.name = l.pipeline
WHERE l.pipeline = %(pipeline)s AND l.replay_at >= %(began)s::timestamptz
"""
