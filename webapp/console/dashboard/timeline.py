"""What happened to a pipeline within the range of its charts, as marks on them.

Starts, requests and alerts, rewinds and other reasons why its ledger went back, and reprocesses.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone

from tidegauge.webapp.accounts.audit.models import AuditEntry
from tidegauge.webapp.catalog.models import Reprocess
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.queries import epochs
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.console.dashboard.time_charts import ShownRange
from tidegauge.webapp.notify.alerts.history import periods
from tidegauge.webapp.notify.alerts.visible import visible_alerts

# More would hide the lines of a chart.
MOST_MARKS = 40

REQUESTS = {
    "pipeline.pause": "pause requested",
    "pipeline.resume": "resumed",
    "pipeline.replay": "replay of dead letters",
}
# Verdicts that a driver causes, and not the passing of time.
EVENTS = {"failed", "lost", "retrying", "stopped", "paused", "starting"}
# Phases in which a reprocess ended without its states.
UNDONE = {"aborted": "reprocess aborted", "rolled_back": "reprocess taken back"}


@dataclass(frozen=True)
class TimelineMark:
    """tone: as that of a verdict."""

    at: datetime
    text: str
    tone: str

    @property
    def drawn(self) -> tuple[float, str, str]:
        return self.at.timestamp(), self.text, self.tone


def timeline(pipeline: PipelineStatus, shown: ShownRange, visible: Visible) -> list[TimelineMark]:
    """Return the marks of the range, oldest first. A restricted reader gets none that people caused."""
    until = shown.until or timezone.now()
    since = shown.since or until - timedelta(seconds=shown.seconds)
    marks = [
        TimelineMark(period.began_at, period.verdict, "watch")
        for period in periods(pipeline.name, since, until)
        if period.verdict in EVENTS
    ]
    if pipeline.started_at is not None:
        marks.append(TimelineMark(pipeline.started_at, "driver started", "calm"))
    alerts = visible_alerts(visible).filter(pipeline=pipeline.name, began_at__gte=since, began_at__lt=until)
    marks += [TimelineMark(alert.began_at, f"alert: {alert.verdict}", "bad") for alert in alerts[:MOST_MARKS]]
    if visible.scope.is_unrestricted:
        marks += [*_requested(pipeline.name, since, until), *_went_back(pipeline.name), *_reprocessed(pipeline.name)]
    return sorted((mark for mark in marks if since <= mark.at < until), key=lambda mark: mark.at)[-MOST_MARKS:]


def _requested(name: str, since: datetime, until: datetime) -> list[TimelineMark]:
    found = AuditEntry.objects.filter(at__gte=since, at__lt=until, target=f"pipeline {name}", action__in=REQUESTS)
    return [
        TimelineMark(entry.at, f"{REQUESTS[entry.action]} by {entry.actor}", "calm") for entry in found[:MOST_MARKS]
    ]


def _went_back(name: str) -> Iterator[TimelineMark]:
    """Yield when the ledger of a pipeline went back: by a rewind, a restore, a promotion."""
    own = f"pipeline {name!r}"
    # Without the oldest one, with which the ledger began.
    for epoch in epochs()[:-1]:
        reason = epoch["reason"].replace(own, "")
        # A reprocess has marks of its own. The reason names a pipeline unless all of them went back.
        if "reprocess" not in reason and "pipeline '" not in reason:
            yield TimelineMark(epoch["made_at"], reason.removeprefix(" was ").removeprefix(": "), "watch")


def _reprocessed(name: str) -> Iterator[TimelineMark]:
    for each in Reprocess.objects.filter(pipeline=name)[:MOST_MARKS]:
        yield TimelineMark(each.started_at, "reprocess started", "calm")
        if each.swapped_at is not None:
            yield TimelineMark(each.swapped_at, "reprocessed states replaced the former ones", "watch")
        if each.ended_at is not None and each.phase in UNDONE:
            yield TimelineMark(each.ended_at, UNDONE[each.phase], "watch")
