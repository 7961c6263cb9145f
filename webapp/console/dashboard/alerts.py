"""The alerts on the page of a pipeline: the open ones, the silences, and those that ended last."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import F
from django.utils import timezone

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.alerts.figures import figures, limits_of
from tidegauge.webapp.notify.alerts.messages import silences
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence
from tidegauge.webapp.notify.alerts.rules import unknown_figures
from tidegauge.webapp.notify.alerts.visible import visible_alerts

SHOWN_ALERTS = 8


@dataclass(frozen=True)
class PipelineAlerts:
    """alerts: the open ones first. silences: the active ones of this pipeline or of all.

    unknown: rules, each with the figures of the pipeline that it limits and that are unknown.
    """

    alerts: Sequence[Alert]
    silences: Sequence[Silence]
    unknown: Sequence[tuple[AlertRule, list[str]]]


def pipeline_alerts(pipeline: PipelineStatus, visible: Visible) -> PipelineAlerts:
    """Return what a user may see. A restricted one gets no silences and rules, because people wrote their texts."""
    found = visible_alerts(visible).filter(pipeline=pipeline.name)
    newest = found.order_by(F("ended_at").desc(nulls_first=True), "-began_at")[:SHOWN_ALERTS]
    if visible.names is not None:
        return PipelineAlerts(list(newest), [], [])
    quiet = [each for each in silences(timezone.now()) if each.pipeline in ("", pipeline.name)]
    return PipelineAlerts(list(newest), quiet, _unknown(pipeline))


def _unknown(pipeline: PipelineStatus) -> list[tuple[AlertRule, list[str]]]:
    rules = [rule for rule in AlertRule.objects.filter(enabled=True) if limits_of(rule)]
    known = figures([pipeline], timezone.now()) if rules else {}
    found = [(rule, unknown_figures(rule, [pipeline], known).get(pipeline.name, [])) for rule in rules]
    return [(rule, names) for rule, names in found if names]
