"""How often a rule would have fired: the same as it does fire when the same verdicts are found."""

from datetime import UTC, datetime, timedelta

import pytest

from tidegauge.webapp.catalog import queries
from tidegauge.webapp.notify.alerts.models import AlertRule, VerdictPeriod
from tidegauge.webapp.notify.alerts.past_week import alerts_of, left_out, periods_by_pipeline

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def fired(periods: list[tuple[str, int]], **fields) -> int:
    """periods: verdicts of `flights`, one after the other, each with its seconds."""
    at = NOON
    for verdict, seconds in periods:
        until = at + timedelta(seconds=seconds)
        VerdictPeriod.objects.create(pipeline="flights", verdict=verdict, began_at=at, until=until, is_current=False)
        at = until
    rule = AlertRule(**{"verdicts": ["failed", "lost"], "after_seconds": 60} | fields)
    return alerts_of(rule, queries.pipelines(), periods_by_pipeline(NOON - timedelta(days=7)))


@pytest.mark.parametrize(
    ("periods", "count"),
    [
        ([("well", 600), ("failed", 60), ("well", 600), ("lost", 90)], 2),
        ([("failed", 59), ("well", 600)], 0),
        ([("failed", 40), ("well", 30), ("failed", 40), ("well", 600)], 1),  # less than a minute apart
        ([("failed", 90), ("stopped", 600), ("starting", 90), ("failed", 90), ("well", 600)], 1),
        ([("failed", 90), ("stale", 600), ("failed", 90)], 2),
        ([("stale", 600)], 0),
    ],
)
def test_an_alert_lasts_until_its_verdicts_are_gone(filled, periods, count):
    assert fired(periods) == count


def test_a_rule_about_others_has_none(filled):
    assert fired([("failed", 600)], pipelines=["orders"]) == 0
    assert fired([], states=["totals"]) == 1


def test_what_is_not_recorded_is_said():
    assert left_out(AlertRule(verdicts=["not served"]))
    assert left_out(AlertRule(verdicts=["failed"], lag_seconds=60))
    assert not left_out(AlertRule(verdicts=["failed"]))
