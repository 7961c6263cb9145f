"""The periodic check: reads all pipelines, records their verdicts, and reports what the rules find."""

from datetime import datetime

from django.db import connection, transaction
from django.utils import timezone

from tidegauge.webapp.catalog import queries
from tidegauge.webapp.notify.alerts.acknowledged import forget_ended
from tidegauge.webapp.notify.alerts.figures import figures, limits_of
from tidegauge.webapp.notify.alerts.history import LONGEST_PAUSE, record_verdicts
from tidegauge.webapp.notify.alerts.messages import notify
from tidegauge.webapp.notify.alerts.models import AlertRule, LastCheck
from tidegauge.webapp.notify.alerts.rules import above_limits, findings, follow
from tidegauge.webapp.notify.alerts.samples import record_sample

# Held until the end of the transaction, so that two workers never report the same.
LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('tidegauge alerts', 0))"


def check() -> bool:
    """Check all pipelines, unless another worker is doing it. Returns whether they were checked."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(LOCK)
            if not cursor.fetchone()[0]:
                return False
        _look(timezone.now())
    return True


def _look(at: datetime) -> None:
    before = LastCheck.objects.values_list("at", flat=True).first()
    pipelines = queries.pipelines()
    record_verdicts(pipelines, at)
    forget_ended(pipelines)
    record_sample(pipelines, at)
    rules = list(AlertRule.objects.filter(enabled=True))
    found, known = findings(pipelines), figures(pipelines, at) if any(map(limits_of, rules)) else {}
    for rule in rules:
        follow(
            rule,
            found | above_limits(rule, pipelines, known),
            at,
            was_away=before is None or at - before > LONGEST_PAUSE,
        )
        notify(rule, pipelines, at)
