"""The alerts of a pipeline as its page shows them: what is open, what is silenced, what was over last."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F
from django.utils import timezone

from webapp.alerts.models import Alert, Silence
from webapp.alerts.notices import silences
from webapp.states.visible import Visible

SHOWN_ALERTS = 8


@dataclass(frozen=True)
class PipelineAlerts:
    """alerts: the open ones first. silences: that are in force, of the pipeline or of all."""

    alerts: Sequence[Alert]
    silences: Sequence[Silence]


def pipeline_alerts(pipeline: str, visible: Visible) -> PipelineAlerts:
    """Return what somebody who sees the pipeline sees: nothing of other states, and no names that people gave."""
    found = Alert.objects.filter(pipeline=pipeline).exclude(told="").select_related("rule")
    if visible.names is not None:
        found = found.filter(state__in=["", *visible.names])
    newest = found.order_by(F("ended_at").desc(nulls_first=True), "-began_at")[:SHOWN_ALERTS]
    quiet = [each for each in silences(timezone.now()) if each.pipeline in ("", pipeline)]
    return PipelineAlerts(list(newest), quiet if visible.names is None else [])
