"""Queries for dead letters of committed batches: the newest ones, pages of older ones, and groups of the same reason.

A group has the letters of one state, or of the source, whose reasons are the same but for the parts that differ from
letter to letter (REASON_PATTERN).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tidegauge.state_backends.dead_letters.letters import HAS_PATTERN, PATTERN_OF_HEAD, REASON_HEAD
from tidegauge.state_backends.errors import UnknownPipelineError
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.queries import fetch, pipeline_names

# Selects, in a filter, the letters that no state has rejected. No state can have this name.
SOURCE = "(source)"

# Only the newest letters are grouped, because 10,000 take about 0.1 s (November 2026, a busy machine).
GROUPED_LETTERS, MOST_GROUPS = 10_000, 100
TREND_STEPS = 24

# Pages show this much of a raw record, as text; an export has all of it.
RECORD_CHARACTERS = 2_000


@dataclass(frozen=True)
class LetterFilter:
    """state: a name, or SOURCE. reason: the pattern of a group. None: all."""

    state: str | None = None
    txid: int | None = None
    reason: str | None = None

    def parameters(self, pipeline: str) -> dict[str, Any]:
        state = "" if self.state == SOURCE else self.state
        return {"pipeline": pipeline, "state": state, "txid": self.txid, "pattern": self.reason}


@dataclass(frozen=True)
class DeadLetterSummary:
    """Input that could not be processed. state: the state that rejected it; empty if the source could not read it.

    line, record: None for a reader who may not view them. record: JSON, cut; also None if none was kept.
    """

    id: int
    pipeline: str
    txid: int
    state: str
    source: str
    line_number: int | None
    line: str | None
    reason: str
    at: datetime
    replay_txid: int | None = None
    record: str | None = None

    @property
    def is_cut(self) -> bool:
        return self.record is not None and len(self.record) >= RECORD_CHARACTERS

    def without_input(self) -> "DeadLetterSummary":
        return replace(self, line=None, record=None)


@dataclass(frozen=True)
class DeadLetterPage:
    """following: `before` of the next page; None on the last one."""

    letters: list[DeadLetterSummary]
    following: tuple[int, int] | None


@dataclass(frozen=True)
class LetterGroup:
    """Letters with the same reason. share: their share of all grouped letters. trend: their number in each time step.

    replayable: how many can be replayed. waiting: how many wait for a requested replay. replayed: how many were counted
    by a replay. example: the newest one.
    """

    state: str
    reason: str
    letters: int
    share: float
    first_at: datetime
    last_at: datetime
    replayable: int
    waiting: int
    replayed: int
    trend: list[int]
    example: DeadLetterSummary


@dataclass(frozen=True)
class LetterGroups:
    """groups: the largest first. letters: how many of the newest were grouped. since, until: the range of each trend.

    is_whole: whether there are no older letters and no further groups.
    """

    groups: list[LetterGroup]
    letters: int
    since: datetime | None
    until: datetime | None
    is_whole: bool

    def without_input(self) -> "LetterGroups":
        groups = [replace(group, example=group.example.without_input()) for group in self.groups]
        return replace(self, groups=groups)


def newest_dead_letters(pipeline: str, limit: int = 50) -> list[DeadLetterSummary]:
    """Return the newest dead letters. Raises UnknownPipelineError."""
    rows = _fetch(LETTERS, pipeline, LetterFilter(), limit=limit, before_txid=None, before_id=None)
    if not rows and pipeline not in pipeline_names():
        raise UnknownPipelineError.among(pipeline, pipeline_names())
    return [DeadLetterSummary(**row) for row in rows]


def dead_letter_page(
    pipeline: PipelineStatus, chosen: LetterFilter, *, before: tuple[int, int] | None, limit: int
) -> DeadLetterPage:
    """Return dead letters, newest first. before: txid and id of the last one shown."""
    txid, letter_id = before or (None, None)
    rows = _fetch(LETTERS, pipeline.name, chosen, limit=limit + 1, before_txid=txid, before_id=letter_id)
    shown = [DeadLetterSummary(**row) for row in rows[:limit]]
    return DeadLetterPage(shown, (shown[-1].txid, shown[-1].id) if len(rows) > limit else None)


def letter_groups(pipeline: str, chosen: LetterFilter) -> LetterGroups:
    """Return the newest dead letters by state and reason."""
    rows = _fetch(GROUPS, pipeline, chosen, limit=GROUPED_LETTERS, groups=MOST_GROUPS, steps=TREND_STEPS)
    if not rows:
        return LetterGroups([], 0, None, None, is_whole=True)
    letters = int(rows[0]["grouped"])
    is_whole = letters < GROUPED_LETTERS and rows[0]["groups"] <= MOST_GROUPS
    return LetterGroups(
        [_group(row, letters) for row in rows], letters, rows[0]["since"], rows[0]["until"], is_whole=is_whole
    )


CHOSEN = f"""
l.pipeline = %(pipeline)s AND l.txid <= (SELECT p.committed_txid FROM tidegauge.pipeline p WHERE p.name = %(pipeline)s)
AND (%(state)s::text IS NULL OR l.state = %(state)s) AND (%(txid)s::bigint IS NULL OR l.txid = %(txid)s)
AND (%(pattern)s::text IS NULL OR {HAS_PATTERN})
"""  # noqa: S608  fixed texts

SUMMARY = f"""
l.id, l.pipeline, l.txid, l.state, l.source, l.line_number, l.line, l.reason, l.at, l.replay_txid,
left(l.record::text, {RECORD_CHARACTERS}) AS record
"""

LETTERS = f"""
SELECT {SUMMARY} FROM tidegauge.dead_letter l
WHERE {CHOSEN} AND (%(before_txid)s::bigint IS NULL OR
    (l.txid <= %(before_txid)s AND (l.txid, l.id) < (%(before_txid)s, %(before_id)s)))
ORDER BY l.txid DESC, l.id DESC LIMIT %(limit)s
"""  # noqa: S608  fixed texts

# The columns of an export, with their SQL types.
EXPORTED = {
    "id": "bigint", "txid": "bigint", "state": "text", "source": "text", "line_number": "bigint", "reason": "text",
    "line": "text", "record": "jsonb", "at": "timestamptz", "replay_at": "timestamptz", "replay_by": "text",
    "replay_txid": "bigint",
}  # fmt: skip

EXPORT = f"""
SELECT {", ".join(f"l.{column}" for column in EXPORTED)} FROM tidegauge.dead_letter l
WHERE {CHOSEN} ORDER BY l.txid DESC, l.id DESC LIMIT %(limit)s
"""  # noqa: S608  fixed texts

# Each distinct reason is read once, and so is what is left of it without the value at its end, because the regular
# expressions of a pattern take most of the time.
GROUPS = f"""
WITH looked AS MATERIALIZED (
    SELECT l.id, l.state, l.reason, l.at, coalesce(l.replay_txid <= p.committed_txid, false) AS is_replayed,
        l.replay_at IS NOT NULL AS is_requested,
        l.state = '' AND l.record IS NOT NULL AND l.counted_by = '' AND l.replay_at IS NULL AS is_replayable
    FROM tidegauge.dead_letter l JOIN tidegauge.pipeline p ON p.name = l.pipeline
    WHERE {CHOSEN} ORDER BY l.txid DESC, l.id DESC LIMIT %(limit)s
), heads AS MATERIALIZED (
    SELECT l.reason, {REASON_HEAD} AS head FROM (SELECT DISTINCT reason FROM looked) l
), patterns AS MATERIALIZED (
    SELECT l.head, {PATTERN_OF_HEAD} AS pattern FROM (SELECT DISTINCT head FROM heads) l
), span AS (
    SELECT min(at) AS since, greatest(max(at), now()) AS until FROM looked
), steps AS (
    SELECT l.state, r.pattern, max(l.id) AS example, count(*) AS letters, min(l.at) AS first_at, max(l.at) AS last_at,
        count(*) FILTER (WHERE l.is_replayable) AS replayable, count(*) FILTER (WHERE l.is_replayed) AS replayed,
        count(*) FILTER (WHERE l.is_requested AND NOT l.is_replayed) AS waiting,
        least(floor(%(steps)s * coalesce(extract(epoch FROM l.at - s.since)
            / nullif(extract(epoch FROM s.until - s.since), 0), 1)), %(steps)s - 1)::int AS step
    FROM looked l JOIN heads h USING (reason) JOIN patterns r USING (head) CROSS JOIN span s
    GROUP BY l.state, r.pattern, step
), grouped AS (
    SELECT pattern, max(example) AS example, sum(letters)::bigint AS letters, min(first_at) AS first_at,
        max(last_at) AS last_at, sum(replayable)::bigint AS replayable, sum(waiting)::bigint AS waiting,
        sum(replayed)::bigint AS replayed, jsonb_object_agg(step, letters) AS trend,
        sum(sum(letters)) OVER () AS grouped, count(*) OVER () AS groups
    FROM steps GROUP BY state, pattern ORDER BY sum(letters) DESC, pattern LIMIT %(groups)s
)
SELECT g.pattern, g.letters, g.first_at, g.last_at, g.replayable, g.waiting, g.replayed, g.trend, g.grouped, g.groups,
    s.since, s.until, {SUMMARY}
FROM grouped g CROSS JOIN span s JOIN tidegauge.dead_letter l ON l.id = g.example
ORDER BY g.letters DESC, g.pattern
"""  # noqa: S608  fixed texts


def _fetch(statement: str, pipeline: str, chosen: LetterFilter, **more: Any) -> list[dict[str, Any]]:
    return fetch(statement, chosen.parameters(pipeline) | more)


def _group(row: Mapping[str, Any], grouped: int) -> LetterGroup:
    example = DeadLetterSummary(**{name: row[name] for name in DeadLetterSummary.__dataclass_fields__})
    own = ("letters", "first_at", "last_at", "replayable", "waiting", "replayed")
    return LetterGroup(
        state=example.state,
        reason=row["pattern"],
        share=row["letters"] / grouped,
        trend=[row["trend"].get(str(step), 0) for step in range(TREND_STEPS)],
        example=example,
        **{name: row[name] for name in own},
    )
