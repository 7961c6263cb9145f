"""How often a rule would have sent a message, had it existed: its verdicts, replayed over the recorded periods.

Figures above a limit and findings about states are not recorded, so a rule about them has more alerts than this finds.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.notify.alerts.figures import limits_of
from tidegauge.webapp.notify.alerts.models import AlertRule, VerdictPeriod
from tidegauge.webapp.notify.alerts.rules import CALM, OF_STATES, UNDECIDED, is_chosen

WEEK = timedelta(days=7)


def periods_by_pipeline(since: datetime) -> Mapping[str, list[VerdictPeriod]]:
    """Return the recorded periods that had not ended by then, by pipeline, the oldest first."""
    found: dict[str, list[VerdictPeriod]] = {}
    for period in VerdictPeriod.objects.filter(until__gte=since).order_by("began_at", "id"):
        found.setdefault(period.pipeline, []).append(period)
    return found


def alerts_of(
    rule: AlertRule, pipelines: Iterable[PipelineStatus], periods: Mapping[str, Sequence[VerdictPeriod]]
) -> int:
    """Return how many alerts about verdicts on pipelines the rule would have told of. The rule need not be saved."""
    return sum(_alerts(rule, periods.get(one.name, ())) for one in pipelines if is_chosen(rule, one.name, one.states))


def left_out(rule: AlertRule) -> bool:
    """Return whether the rule is also about what is not recorded."""
    return bool(limits_of(rule)) or any(name in OF_STATES for name in rule.verdicts)


def _alerts(rule: AlertRule, periods: Sequence[VerdictPeriod]) -> int:
    """Count the alerts of one pipeline: one lasts until its verdicts are gone for CALM, as in rules.follow."""
    count, began, ended = 0, None, None
    for period in periods:
        if period.verdict in rule.verdicts:
            if began is None:
                began = period.began_at
            ended = period.until
        elif began is not None and period.verdict not in UNDECIDED and period.until - period.began_at >= CALM:
            count += _has_lasted(rule, began, ended)
            began = None
    return count + (began is not None and _has_lasted(rule, began, ended))


def _has_lasted(rule: AlertRule, began: datetime, ended: datetime | None) -> bool:
    return ended is not None and ended - began >= timedelta(seconds=rule.after_seconds)
