"""Which alerts a caller sees: those of its own states and of their pipelines, without the names of rules."""

from typing import Any

from django.db.models import QuerySet

from tidegauge.webapp.catalog.models import State
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.alerts.models import Alert


def visible_alerts(visible: Visible) -> QuerySet[Alert]:
    """Return the alerts that a message has named, newest first."""
    told = Alert.objects.exclude(told="").select_related("rule").order_by("-id")
    if visible.names is None:
        return told
    own = State.objects.filter(name__in=visible.names)
    return told.filter(pipeline__in=own.values("pipeline"), state__in=["", *visible.names])


def alert_document(alert: Alert, visible: Visible) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "status": Alert.OVER if alert.ended_at else "open",
        "pipeline": alert.pipeline,
        "state": alert.state,
        "rule": alert.rule.name if visible.names is None else "",
        "verdict": alert.verdict,
        "figure": alert.figure,
        "reason": alert.reason,
        "since": alert.began_at,
        "until": alert.ended_at,
    }
