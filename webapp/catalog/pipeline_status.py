"""The status of a pipeline, its driver and its last reprocess, from one row of a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidegauge.state_backends.ledger.driver_start import PLAIN, DriverStart
from tidegauge.state_backends.spec.state_spec import weakest
from tidegauge.webapp.catalog.trend import Trend

# Statuses that a driver reports while it runs. If the driver is gone they are outdated, and the pipeline is `lost`.
ALIVE_STATUSES = {"starting", "running", "paused", "restarting"}


@dataclass(frozen=True)
class ReprocessStatus:
    """Progress of reprocessing a pipeline's states, as ReprocessSerializer describes it."""

    status: str
    message: str
    since: datetime
    batches: int
    rows: int
    rows_per_second: float
    pending: dict[str, Any] | None


@dataclass(frozen=True)
class LastReprocess:
    """The reprocess that the present states are from, as LastReprocessSerializer describes it."""

    swapped_at: datetime
    kept_until: datetime | None
    bytes: int
    lacks: str


@dataclass(frozen=True)
class PipelineStatus:
    """One pipeline and its driver, as PipelineSerializer describes them.

    pending: None if unknown. Nobody knows whether input has come since a driver ended, so an empty backlog that it
        reported is unknown then. waiting_since, lag_seconds: None, 0 if nothing waits; None, None if unknown.
    committed_time: the batch time of the committed batch; committed_at: when it was committed.
    host, pid, started_at, start: of its last driver, and how that was started. ended_at: its last report, if it has
        ended. message: with its commands as they work on that host.
    trend: None without batches of the last minutes. rows_in: of all batches. unserved: the states with a finding.
    """

    name: str
    description: str
    spout: str
    guarantee: str
    status: str
    message: str
    epoch: str
    committed_txid: int
    committed_time: datetime | None
    open_txid: int | None
    rows_per_second: float
    pending: dict[str, Any] | None
    waiting_since: datetime | None
    lag_seconds: float | None
    dead_letters: int
    rejected_share: float | None
    late: int
    dropped: int
    states: list[str]
    committed_at: datetime | None
    failures: int
    max_failures: int | None
    next_try_at: datetime | None
    wanted: str
    wanted_by: str
    wanted_at: datetime | None
    reprocess: ReprocessStatus | None = None
    last_reprocess: LastReprocess | None = None
    host: str = ""
    pid: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    start: DriverStart = PLAIN
    trend: Trend | None = None
    rows_in: int = 0
    unserved: Sequence[str] = ()

    @property
    def is_driven(self) -> bool:
        return self.status in ALIVE_STATUSES


def status_from_row(row: dict[str, Any]) -> PipelineStatus:
    """Return the status that a row of `queries.PIPELINES` describes."""
    status = _driver_status(row.pop("alive"), row.pop("reported"))
    pending = _known_pending(status, (row.pop("progress") or {}).get("pending"))
    since = min((moment for moment in (_oldest(pending), row.pop("open_time")) if moment), default=None)
    start = DriverStart.from_json(row.pop("start"))
    return PipelineStatus(
        start=start,
        message=start.spelled(row.pop("message")),
        status=status,
        guarantee=weakest(row.pop("guarantees") or [""]),
        states=row.pop("states") or [],
        unserved=row.pop("unserved") or [],
        pending=pending,
        waiting_since=since,
        lag_seconds=_lag_seconds(pending, since),
        trend=Trend.from_json(row.pop("trend")),
        reprocess=_reprocess(row.pop("reprocess")),
        last_reprocess=_last_reprocess(row.pop("last_reprocess")),
        **row,
    )


def _reprocess(row: dict[str, Any] | None) -> ReprocessStatus | None:
    if row is None:
        return None
    status = _driver_status(row.pop("alive"), row.pop("reported"))
    since = datetime.fromisoformat(row.pop("since"))
    return ReprocessStatus(status=status, since=since, pending=(row.pop("progress") or {}).get("pending"), **row)


def _last_reprocess(row: dict[str, Any] | None) -> LastReprocess | None:
    if row is None:
        return None
    until = row["kept_until"]
    swapped_at = datetime.fromisoformat(row["swapped_at"])
    return LastReprocess(swapped_at, until and datetime.fromisoformat(until), row["bytes"], row["lacks"])


def _driver_status(alive: bool, reported: str | None) -> str:
    if reported is None:
        return "never started"
    return "lost" if reported in ALIVE_STATUSES and not alive else reported


def _known_pending(status: str, pending: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what is pending; None if a driver that has ended reported nothing, as input may have come since."""
    is_known = status in ALIVE_STATUSES or status == "finished" or (pending or {}).get("count")
    return pending if is_known else None


def _oldest(pending: dict[str, Any] | None) -> datetime | None:
    if not pending or not pending.get("count") or not pending.get("oldest"):
        return None
    oldest = datetime.fromisoformat(pending["oldest"])
    return oldest.replace(tzinfo=UTC) if oldest.tzinfo is None else oldest


def _lag_seconds(pending: dict[str, Any] | None, since: datetime | None) -> float | None:
    if since is not None:
        return max(0.0, (datetime.now(UTC) - since).total_seconds())
    return 0.0 if pending and not pending.get("count") else None
