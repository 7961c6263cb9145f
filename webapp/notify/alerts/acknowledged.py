"""Acknowledging and silencing from the console: who takes care of a problem, and for how long nothing is sent.

An acknowledgement holds for one problem. It ends when the pipeline is well, has a worse verdict, or got another driver
since, because its problem is then another one, even if the periodic check has seen nothing of that.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.verdicts import verdict
from tidegauge.webapp.notify.alerts.models import Acknowledgement, Silence
from tidegauge.webapp.notify.alerts.rules import is_worse


def acknowledgements(pipelines: Iterable[PipelineStatus]) -> Mapping[str, Acknowledgement]:
    """Return the acknowledgements that hold, by pipeline."""
    by_name = {pipeline.name: pipeline for pipeline in pipelines}
    found = Acknowledgement.objects.filter(pipeline__in=by_name).select_related("by")
    return {each.pipeline: each for each in found if _holds(each, by_name[each.pipeline])}


def acts_version() -> str:
    """Return a text that changes with acknowledgements and silences."""
    made = Acknowledgement.objects.order_by().values_list("pipeline", "at")
    quiet = Silence.objects.filter(until__gt=timezone.now()).order_by().values_list("pipeline", "until")
    return str(sorted(made.union(quiet, all=True)))


def forget_ended(pipelines: Iterable[PipelineStatus]) -> None:
    """Delete the acknowledgements that hold no longer. Called by the periodic check."""
    pipelines = list(pipelines)
    Acknowledgement.objects.exclude(pipeline__in=acknowledgements(pipelines)).delete()


def acknowledge(pipelines: Iterable[PipelineStatus], by: User) -> None:
    """Acknowledge the present problem of each pipeline that has one."""
    with transaction.atomic():
        for pipeline in pipelines:
            found = verdict(pipeline)
            if found.is_problem:
                values = {"verdict": found.name, "by": by}
                Acknowledgement.objects.update_or_create(pipeline=pipeline.name, defaults=values)
                record("alert.acknowledge", f"pipeline {pipeline.name}", by=by.get_username(), verdict=found.name)


def silence(pipelines: Iterable[PipelineStatus], until: datetime, by: User) -> None:
    """Send no messages about these pipelines until then."""
    with transaction.atomic():
        for pipeline in pipelines:
            Silence.objects.create(pipeline=pipeline.name, until=until, created_by=by)
            record("alert.silence", f"pipeline {pipeline.name}", by=by.get_username(), until=until.isoformat())


def end_silence(silence: Silence, by: User) -> None:
    """Send messages again from now on."""
    with transaction.atomic():
        Silence.objects.filter(pk=silence.pk, until__gt=timezone.now()).update(until=timezone.now())
        record("alert.unsilence", silence.about, by=by.get_username())


def _holds(made: Acknowledgement, pipeline: PipelineStatus) -> bool:
    found = verdict(pipeline)
    is_other = pipeline.started_at is not None and pipeline.started_at > made.at
    return found.is_problem and not is_other and not is_worse(found.name, made.verdict)
