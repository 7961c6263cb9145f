"""What the rules find: alerts begin, become worse and end with the verdicts on pipelines and the findings about states.

An alert ends once its verdict has been gone for CALM, so that one that comes and goes is one alert. A driver that was
stopped, paused or started again mends nothing yet: its alerts stay as they are until the pipeline is seen running.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from webapp.alerts.models import Alert, AlertRule
from webapp.states import queries
from webapp.states.maintenance import deviations
from webapp.states.queries import PipelineStatus
from webapp.states.verdicts import TONES, WORST_FIRST, verdict

CALM = timedelta(seconds=60)

NOT_SERVED, DEVIATING = "not served", "deviating"
OF_STATES = [NOT_SERVED, DEVIATING]
OF_PIPELINES = [name for name, tone in TONES.items() if tone in ("bad", "watch")]
CHOICES = [*OF_PIPELINES, *OF_STATES]
USUAL = [name for name in CHOICES if name not in ("retrying", "paused", "stopped")]

# They hide whether what was wrong before still is.
UNDECIDED = {"stopped", "paused", "never started", "starting"}

# Of a pipeline, or of a state with the name of its pipeline.
Subject = tuple[str, str]

STATES = "SELECT name, pipeline, finding <> '' AS not_served FROM tidemark.state"


@dataclass(frozen=True)
class Found:
    """The verdict on a pipeline, or on a state. states: that it is about, for rules of states."""

    verdict: str
    reason: str
    states: frozenset[str]


def findings(pipelines: Iterable[PipelineStatus]) -> dict[Subject, Found]:
    """Return the verdict on each pipeline, and on each state with a problem."""
    found = {(one.name, ""): _of_pipeline(one) for one in pipelines}
    deviating = deviations()
    for row in queries.fetch(STATES, {}):
        name, own = row["name"], frozenset([row["name"]])
        if row["not_served"]:
            found[row["pipeline"], name] = Found(NOT_SERVED, "it is not served; its page says why", own)
        elif deviating.get(name):
            reason = f"{deviating[name]:,} keys deviated in its newest audit"
            found[row["pipeline"], name] = Found(DEVIATING, reason, own)
    return found


def follow(rule: AlertRule, found: Mapping[Subject, Found], at: datetime, *, was_away: bool) -> None:
    """Begin, change and end the alerts of a rule.

    was_away: nobody has looked for a while, so how long a verdict has lasted is counted from now.
    """
    opened = {(alert.pipeline, alert.state): alert for alert in rule.alerts.filter(ended_at=None)}
    for subject, alert in opened.items():
        if was_away:
            alert.began_at = at if not alert.told else alert.began_at
            alert.well_since = None
        _follow(rule, alert, found.get(subject), at)
    Alert.objects.bulk_create(
        Alert(rule=rule, pipeline=pipeline, state=state, verdict=each.verdict, reason=each.reason, began_at=at)
        for (pipeline, state), each in sorted(found.items())
        if (pipeline, state) not in opened and _is_about(rule, pipeline, each)
    )


def is_worse(verdict: str, than: str) -> bool:
    return _rank(verdict) < _rank(than)


def _follow(rule: AlertRule, alert: Alert, found: Found | None, at: datetime) -> None:
    if found and _is_about(rule, alert.pipeline, found):
        alert.verdict, alert.reason, alert.well_since = found.verdict, found.reason, None
    elif found is None or _is_over(alert, found):
        alert.well_since = alert.well_since or at
    if alert.well_since and at - alert.well_since >= CALM:
        alert.ended_at = at
    if alert.ended_at and not alert.told:
        alert.delete()
    else:
        alert.save()


def _is_about(rule: AlertRule, pipeline: str, found: Found) -> bool:
    names_nothing = not (rule.pipelines or rule.states)
    is_chosen = names_nothing or pipeline in rule.pipelines or not found.states.isdisjoint(rule.states)
    return found.verdict in rule.verdicts and is_chosen


def _is_over(alert: Alert, found: Found) -> bool:
    """Return whether a verdict that the rule is not about shows that the one of the alert is gone."""
    return found.verdict not in UNDECIDED and is_worse(alert.verdict, found.verdict)


def _rank(verdict: str) -> int:
    return [*OF_STATES, *WORST_FIRST].index(verdict)


def _of_pipeline(pipeline: PipelineStatus) -> Found:
    judged = verdict(pipeline)
    return Found(judged.name, judged.reason, frozenset(pipeline.states))
