"""The page of alerts: the open ones with what was done about them, silences, rules, and those that are over."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q
from django.utils import timezone

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.alerts.acknowledged import acknowledgements
from tidegauge.webapp.notify.alerts.figures import LIMITS, limits_of
from tidegauge.webapp.notify.alerts.messages import silences
from tidegauge.webapp.notify.alerts.models import Acknowledgement, Alert, AlertRule, Silence
from tidegauge.webapp.notify.alerts.past_week import WEEK, alerts_of, left_out, periods_by_pipeline
from tidegauge.webapp.notify.alerts.visible import visible_alerts
from tidegauge.webapp.notify.webhooks.models import Delivery

PAGE_ALERTS = 50
MOST_OPEN = 200
# Read to find the last message of each rule.
MOST_MESSAGES = 200


@dataclass(frozen=True)
class OpenAlert:
    alert: Alert
    acknowledged: Acknowledgement | None
    silenced_until: datetime | None


@dataclass(frozen=True)
class RuleView:
    """fired: alerts in the last week as it is now; None if nothing was recorded. is_partial: it has more, see left_out.

    last: its newest message; None if it has sent none.
    """

    rule: AlertRule
    open: int
    fired: int | None
    is_partial: bool
    last: Delivery | None

    @property
    def about(self) -> str:
        return ", ".join([*self.rule.pipelines, *self.rule.states]) or "all pipelines"

    @property
    def when(self) -> list[str]:
        limits = limits_of(self.rule).items()
        return [
            *self.rule.verdicts,
            *(f"{LIMITS[name].figure} over {LIMITS[name].form(most)}" for name, most in limits),
        ]

    @property
    def tells(self) -> list[str]:
        return [*self.rule.mail_to, *(webhook.name for webhook in self.rule.webhooks.all())]


def open_alerts(visible: Visible, pipelines: Sequence[PipelineStatus]) -> list[OpenAlert]:
    """Return the alerts that are open, the newest first. A restricted reader is not told what people did about them."""
    found = list(visible_alerts(visible).filter(ended_at=None)[:MOST_OPEN])
    is_whole = visible.names is None
    taken = acknowledgements(pipelines) if is_whole else {}
    quiet = silences(timezone.now()) if is_whole else []
    return [OpenAlert(each, taken.get(each.pipeline), _silenced_until(each, quiet)) for each in found]


def _silenced_until(alert: Alert, quiet: Sequence[Silence]) -> datetime | None:
    of_it = [each for each in quiet if each.pipeline in ("", alert.pipeline) and each.rule_id in (None, alert.rule_id)]
    return max((each.until for each in of_it), default=None)


def past_alerts(visible: Visible, before: int | None) -> tuple[list[Alert], int | None]:
    """Return a page of the alerts that are over, the newest first, and where the next one starts."""
    ended = visible_alerts(visible).exclude(ended_at=None)
    found = list(ended.filter(pk__lt=before) if before else ended)[: PAGE_ALERTS + 1]
    shown = found[:PAGE_ALERTS]
    return shown, shown[-1].pk if len(found) > PAGE_ALERTS else None


def rules(pipelines: Sequence[PipelineStatus]) -> list[RuleView]:
    counted = Count("alerts", filter=Q(alerts__ended_at=None) & ~Q(alerts__told=""), distinct=True)
    found = list(AlertRule.objects.annotate(open=counted).prefetch_related("webhooks"))
    recorded, messages = periods_by_pipeline(timezone.now() - WEEK), _newest_messages()
    return [
        RuleView(
            rule,
            rule.open,
            alerts_of(rule, pipelines, recorded) if recorded else None,
            left_out(rule),
            next((each for each in messages if (each.source or "").startswith(rule.source)), None),
        )
        for rule in found
    ]


def rules_version() -> str:
    """Return a text that changes with rules and with what became of their messages."""
    told = AlertRule.objects.values_list("pk", "name", "enabled", "sent_at")
    return str([*told, *((each.pk, each.status) for each in _newest_messages())])


def _newest_messages() -> list[Delivery]:
    found = Delivery.objects.filter(source__startswith="rule ").only("source", "status", "created_at")
    return list(found.order_by("-id")[:MOST_MESSAGES])
