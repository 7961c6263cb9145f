"""Finds what a webhook is told about maintenance: that a run is done, or has failed."""

from datetime import datetime, timedelta

from django.utils import timezone

from tidegauge.webapp.catalog.documents import RunSerializer
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.webhooks.models import Webhook
from tidegauge.webapp.notify.webhooks.outbox import Message, News

SOURCE = "run "
TOLD = [MaintenanceRun.Status.DONE, MaintenanceRun.Status.FAILED]

# How far back is read again, because a run may become visible after one that ended later.
OVERLAP = timedelta(minutes=10)


def find_runs(webhook: Webhook, position: dict[str, str] | None, room: int) -> News:
    """Return the runs that ended after a position. It has `since`, when the webhook was first told, and `until`."""
    now = timezone.now()
    if position is None:
        return News([], {"since": now.isoformat(), "until": now.isoformat()})
    since, until = (datetime.fromisoformat(position[name]) for name in ("since", "until"))
    visible = Visible(webhook.scope)
    ended = MaintenanceRun.objects.filter(status__in=TOLD, finished_at__gt=max(since, until - OVERLAP))
    told = webhook.deliveries.filter(source__startswith=SOURCE, created_at__gt=until - 2 * OVERLAP)
    known = [source or "" for source in told.values_list("source", flat=True)]
    ended = ended.exclude(pk__in=[int(source.removeprefix(SOURCE)) for source in known])
    if visible.names is not None:
        ended = ended.filter(state__in=visible.names)
    found = list(ended.order_by("finished_at", "id")[:room])
    last = found[-1].finished_at if len(found) == room else now
    messages = [
        Message(f"maintenance.{run.status}", RunSerializer(visible.of_run(run)).data, f"{SOURCE}{run.id}")
        for run in found
    ]
    return News(messages, position | {"until": (last or now).isoformat()})
