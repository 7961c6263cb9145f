"""The state of the whole system, read in a fixed number of statements, for metrics, readiness and the top of pages.

All requests of a process share one snapshot per second, so frequent scrapes cost the database nothing. The statuses of
all pipelines are kept for two seconds, because every page shows them; the sizes of states for 15, because they take
longer to read.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import connection

from tidegauge.state_backends.synchronizer.membership import Member
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.batches import BatchSummary, recent_batches
from tidegauge.webapp.catalog.limits import own_limits
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.state_summary import StateSummary
from tidegauge.webapp.core.cached import Cached
from tidegauge.webapp.maintenance.runner import deviations
from tidegauge.webapp.notify.webhooks.outbox import Backlog, backlogs

SNAPSHOT_SECONDS = 1.0
STATUSES_SECONDS = 2.0
SIZES_SECONDS = 15.0

RECENT_BATCHES = 50

MAINTENANCE = """
SELECT kind, status, count(*), max(finished_at) FROM tidegauge.maintenance_run GROUP BY kind, status ORDER BY 1, 2
"""


@dataclass(frozen=True)
class RunCount:
    """The number of stored maintenance runs of one kind and status. last: when the latest one ended."""

    kind: str
    status: str
    count: int
    last: datetime | None


@dataclass(frozen=True)
class SystemSnapshot:
    """at: when it was read. batches: the newest of each pipeline, latest first.

    deviations: by state, the number of keys that deviated in its newest audit.
    """

    at: datetime
    pipelines: list[PipelineStatus]
    batches: dict[str, list[BatchSummary]]
    runs: list[RunCount]
    deviations: dict[str, int]
    members: list[Member]
    webhooks: list[Backlog]


def _read_snapshot() -> SystemSnapshot:
    return SystemSnapshot(
        at=datetime.now(UTC),
        pipelines=queries.pipelines(),
        batches=recent_batches(RECENT_BATCHES),
        runs=_run_counts(),
        deviations=deviations(),
        members=queries.members(),
        webhooks=backlogs(),
    )


def _run_counts() -> list[RunCount]:
    with connection.cursor() as cursor:
        cursor.execute(MAINTENANCE)
        return [RunCount(*row) for row in cursor.fetchall()]


def _read_states() -> list[StateSummary]:
    return queries.states()


def _read_pipelines() -> list[PipelineStatus]:
    return queries.pipelines()


system_snapshot = Cached(_read_snapshot, SNAPSHOT_SECONDS)
pipeline_statuses = Cached(_read_pipelines, STATUSES_SECONDS)
state_summaries = Cached(_read_states, SIZES_SECONDS)


def clear_cache() -> None:
    """Make the next call read the database again."""
    system_snapshot.clear()
    pipeline_statuses.clear()
    state_summaries.clear()
    own_limits.clear()


def age(moment: datetime, now: datetime) -> float:
    """Return the seconds from one time to a later one; 0 if clocks disagree."""
    return max(timedelta(0), now - moment).total_seconds()
