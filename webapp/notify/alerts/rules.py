"""What the rules find: alerts begin, become worse and end with verdicts on pipelines, figures, findings about states.

An alert ends once its verdict has been gone for CALM, so that one that comes and goes is one alert. Stopping, pausing
or restarting a driver ends no alert, because it fixes nothing yet: alerts stay until the pipeline is seen running.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import TONES, WORST_FIRST, verdict
from tidegauge.webapp.maintenance.runner import deviations
from tidegauge.webapp.notify.alerts.figures import ABOVE_LIMIT, LIMITS, Figures, limits_of
from tidegauge.webapp.notify.alerts.models import Alert, AlertRule

CALM = timedelta(seconds=60)

NOT_SERVED, DEVIATING = "not served", "deviating"
OF_STATES = [NOT_SERVED, DEVIATING]
OF_PIPELINES = [name for name, tone in TONES.items() if tone in ("bad", "watch")]
CHOICES = [*OF_PIPELINES, *OF_STATES]
USUAL = [name for name in CHOICES if name not in ("retrying", "falling behind", "paused", "stopped")]

# Verdicts that do not show whether an earlier problem still exists.
UNDECIDED = {"stopped", "paused", "never started", "starting"}

# The verdict of a figure while nobody knows whether it is above its limit.
UNKNOWN = "unknown"
UNKNOWN_NOW = "; it is unknown now, so the alert stays open"

# Pipeline, state and figure: the state is empty if it is about the pipeline, the figure if it is about a verdict.
Subject = tuple[str, str, str]

STATES = "SELECT name, pipeline, finding <> '' AS not_served FROM tidegauge.state"


@dataclass(frozen=True)
class Found:
    """The verdict on a pipeline, a figure or a state. states: those that it is about, for rules about states."""

    verdict: str
    reason: str
    states: frozenset[str]


def findings(pipelines: Iterable[PipelineStatus]) -> dict[Subject, Found]:
    """Return the verdict on each pipeline, and on each state with a problem."""
    found = {(one.name, "", ""): _of_pipeline(one) for one in pipelines}
    deviating = deviations()
    for row in queries.fetch(STATES, {}):
        name, own = row["name"], frozenset([row["name"]])
        if row["not_served"]:
            found[row["pipeline"], name, ""] = Found(NOT_SERVED, "it is not served; its page says why", own)
        elif deviating.get(name):
            # Without their number, because only those who may see all keys of the state may know it.
            found[row["pipeline"], name, ""] = Found(DEVIATING, "keys deviated in its newest audit", own)
    return found


def above_limits(
    rule: AlertRule, pipelines: Iterable[PipelineStatus], known: Mapping[str, Figures]
) -> dict[Subject, Found]:
    """Return each figure that is above the limit of a rule, or unknown."""
    return {
        (one.name, "", name): _of_figure(name, value, limit, one)
        for one in pipelines
        for name, limit in limits_of(rule).items()
        if (value := getattr(known[one.name], name)) is None or value > limit
    }


def unknown_figures(
    rule: AlertRule, pipelines: Iterable[PipelineStatus], known: Mapping[str, Figures]
) -> dict[str, list[str]]:
    """Return, for each pipeline that a rule is about, the figures that it limits and that are unknown."""
    found: dict[str, list[str]] = {}
    for (pipeline, _, name), each in above_limits(rule, pipelines, known).items():
        if each.verdict == UNKNOWN and is_chosen(rule, pipeline, each.states):
            found.setdefault(pipeline, []).append(LIMITS[name].figure)
    return found


def follow(rule: AlertRule, found: Mapping[Subject, Found], at: datetime, *, was_away: bool) -> None:
    """Begin, change and end the alerts of a rule.

    was_away: nothing was checked for a while, so how long a verdict has lasted is counted from now.
    """
    opened = {(alert.pipeline, alert.state, alert.figure): alert for alert in rule.alerts.filter(ended_at=None)}
    found = {subject: each for subject, each in found.items() if is_chosen(rule, subject[0], each.states)}
    for subject, alert in opened.items():
        if was_away:
            alert.began_at = at if not alert.told else alert.began_at
            alert.well_since = None
        _follow(rule, alert, found.get(subject), at)
    begun = {subject: each for subject, each in found.items() if subject not in opened and _is_about(rule, each)}
    Alert.objects.bulk_create(
        Alert(
            rule=rule, pipeline=pipeline, state=state, figure=figure,
            verdict=each.verdict, reason=each.reason, began_at=at,
        )
        for (pipeline, state, figure), each in sorted(begun.items())
    )  # fmt: skip


def is_chosen(rule: AlertRule, pipeline: str, states: Collection[str]) -> bool:
    """Return whether a rule is about a pipeline, or about something that concerns these states."""
    names_nothing = not (rule.pipelines or rule.states)
    return names_nothing or pipeline in rule.pipelines or not {*states}.isdisjoint(rule.states)


def is_worse(verdict: str, than: str) -> bool:
    return _rank(verdict) < _rank(than)


def _follow(rule: AlertRule, alert: Alert, found: Found | None, at: datetime) -> None:
    alert.reason = alert.reason.removesuffix(UNKNOWN_NOW)
    if found and _is_about(rule, found):
        alert.verdict, alert.reason, alert.well_since = found.verdict, found.reason, None
    elif found and found.verdict == UNKNOWN:
        # Both times start again once it is known: how long it has lasted, and how long it has been over.
        alert.reason, alert.well_since, alert.ended_at = alert.reason + UNKNOWN_NOW, None, None if alert.told else at
    elif found is None or _is_over(rule, alert, found):
        alert.well_since = alert.well_since or at
    if alert.well_since and at - alert.well_since >= CALM:
        alert.ended_at = at
    if alert.ended_at and not alert.told:
        alert.delete()
    else:
        alert.save()


def _is_about(rule: AlertRule, found: Found) -> bool:
    return found.verdict in [*rule.verdicts, *ABOVE_LIMIT]


def _is_over(rule: AlertRule, alert: Alert, found: Found) -> bool:
    """Return whether a verdict that the rule is not about shows that the alert's verdict no longer applies."""
    is_asked = alert.verdict in rule.verdicts
    return not is_asked or (found.verdict not in UNDECIDED and is_worse(alert.verdict, found.verdict))


def _rank(verdict: str) -> int:
    return [*OF_STATES, *WORST_FIRST, *ABOVE_LIMIT].index(verdict)


def _of_pipeline(pipeline: PipelineStatus) -> Found:
    judged = verdict(pipeline)
    return Found(judged.name, judged.reason, frozenset(pipeline.states))


def _of_figure(name: str, value: float | None, limit: float, pipeline: PipelineStatus) -> Found:
    states = frozenset(pipeline.states)
    if value is None:
        return Found(UNKNOWN, "", states)
    known = LIMITS[name]
    return Found(known.verdict, known.reason.format(known.form(value), known.form(limit)), states)
