"""Messages about alerts, by mail and to webhooks. A rule's message has all that has changed since its last one.

An alert stores what a message has reported about it. So what cannot be reported now, because it is silenced or the last
message was just sent, is reported later if it still differs, and nothing is reported twice.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.urls import reverse

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.notify.alerts.acknowledged import acknowledgements
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule, Silence
from tidegauge.webapp.notify.alerts.rules import is_worse
from tidegauge.webapp.notify.webhooks import outbox
from tidegauge.webapp.notify.webhooks.models import Webhook
from tidegauge.webapp.notify.webhooks.outbox import Message

# The least time between two messages of a rule; changes in between are in the next one.
PACE = timedelta(seconds=60)
MOST_LINES = 50
EVENT = "alert.changed"
TEST = "alert.test"


@dataclass(frozen=True)
class Line:
    """One alert in a message. status: open or over. state: empty if it is about the pipeline. since: when it began."""

    status: str
    pipeline: str
    state: str
    verdict: str
    reason: str
    since: datetime

    @property
    def subject(self) -> str:
        about = f"state {self.state}" if self.state else self.pipeline
        return f"{about} {self.verdict}{' is over' if self.status == Alert.OVER else ''}"


def notify(rule: AlertRule, pipelines: Sequence[PipelineStatus], at: datetime) -> None:
    """Make the messages about what has changed in the alerts of a rule, in the caller's transaction."""
    # A `sent_at` in the future, left by a wrong clock, must not hold messages back.
    if rule.sent_at and timedelta() <= at - rule.sent_at < PACE:
        return
    silenced = _silenced(rule, at)
    changed = [
        alert for alert in rule.alerts.exclude(told=Alert.OVER).order_by("began_at", "id") if _is_news(alert, rule, at)
    ]
    changed = [alert for alert in changed if not silenced & {"", alert.pipeline}]
    if changed:
        taken = acknowledgements(pipelines)
        changed = [alert for alert in changed if alert.ended_at or alert.pipeline not in taken]
    if not changed:
        return
    lines = [_line(alert) for alert in changed]
    if rule.mail_to:
        outbox.add_mail(rule.mail_to, _subject(lines), _body(rule, lines), event=EVENT, source=_new_source(rule))
    for webhook in rule.webhooks.filter(enabled=True):
        _give(webhook, rule, lines, pipelines)
    for alert in changed:
        alert.told = Alert.OVER if alert.ended_at else alert.verdict
    Alert.objects.bulk_update(changed, ["told"])
    AlertRule.objects.filter(pk=rule.pk).update(sent_at=at)


def send_test(rule: AlertRule, by: str) -> None:
    """Store a test message to everybody whom a rule tells. by: the name of the user who asked for it."""
    text = f"This is a test of the alert rule {rule.name!r}, sent by {by}. Nothing has happened.\n"
    with transaction.atomic():
        if rule.mail_to:
            subject = f"Tidegauge: test of the rule {rule.name}"
            outbox.add_mail(rule.mail_to, subject, text, event=TEST, source=_new_source(rule))
        for webhook in rule.webhooks.filter(enabled=True):
            outbox.add(webhook, [Message(TEST, {"rule": rule.name, "alerts": []}, _new_source(rule))])
        record("alert.test", f"alert rule {rule.name}", by=by)


def silences(at: datetime) -> list[Silence]:
    return list(Silence.objects.filter(until__gt=at))


def _silenced(rule: AlertRule, at: datetime) -> set[str]:
    """Return the pipelines that are silenced for a rule; an empty name stands for all."""
    found = Silence.objects.filter(Q(rule=rule) | Q(rule=None), until__gt=at)
    return set(found.values_list("pipeline", flat=True))


def _is_news(alert: Alert, rule: AlertRule, at: datetime) -> bool:
    if alert.ended_at or not alert.told:
        return bool(alert.told) or (
            alert.well_since is None and at - alert.began_at >= timedelta(seconds=rule.after_seconds)
        )
    return is_worse(alert.verdict, alert.told)


def _line(alert: Alert) -> Line:
    status = Alert.OVER if alert.ended_at else "open"
    return Line(status, alert.pipeline, alert.state, alert.verdict, alert.reason, alert.began_at)


def _give(webhook: Webhook, rule: AlertRule, lines: Sequence[Line], pipelines: Sequence[PipelineStatus]) -> None:
    """Store a message in the outbox of a webhook, with only the alerts that the webhook may be told about."""
    visible = Visible(webhook.scope)
    seen = {pipeline.name for pipeline in visible.of_pipelines(pipelines)}
    own = [line for line in lines if line.pipeline in seen and (not line.state or visible.sees(line.state))]
    if not own:
        return
    message = Message(EVENT, {"rule": rule.name, "alerts": [asdict(line) for line in own]}, _new_source(rule))
    if outbox.room(webhook):
        outbox.add(webhook, [message])
    else:
        outbox.add_refused(webhook, message)


def _new_source(rule: AlertRule) -> str:
    return f"{rule.source}{uuid4().hex}"


def _subject(lines: Sequence[Line]) -> str:
    if len(lines) == 1:
        return f"Tidegauge: {lines[0].subject}"
    over = sum(line.status == Alert.OVER for line in lines)
    counts = [f"{len(lines) - over} open" if len(lines) > over else "", f"{over} over" if over else ""]
    return f"Tidegauge: {len(lines)} alerts, {', '.join(filter(None, counts))}"


def _body(rule: AlertRule, lines: Sequence[Line]) -> str:
    texts = [_text(line) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        texts.append(f".. and {len(lines) - MOST_LINES} more; the dashboard shows all")
    return "\n\n".join([*texts, f"Sent by the alert rule {rule.name!r}."]) + "\n"


def _text(line: Line) -> str:
    since = f"since {line.since:%Y-%m-%d %H:%M:%S} UTC"
    text = (
        f"{line.subject}: {line.reason}, {since}"
        if line.status != Alert.OVER
        else f"{line.subject}; it had lasted {since}"
    )
    if not settings.TIDEGAUGE_PUBLIC_URL:
        return text
    name, of = ("dashboard:state", line.state) if line.state else ("dashboard:pipeline", line.pipeline)
    return f"{text}\n  {settings.TIDEGAUGE_PUBLIC_URL}{reverse(name, args=[of])}"
