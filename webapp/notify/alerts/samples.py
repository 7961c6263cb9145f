"""Samples of all pipelines together, one at each periodic check: the worst lag, and totals of rows and dead letters."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.notify.alerts.models import HealthSample

KEPT = timedelta(days=1)


def sample(pipelines: Iterable[PipelineStatus], at: datetime) -> HealthSample:
    pipelines = list(pipelines)
    lags = [pipeline.lag_seconds for pipeline in pipelines if pipeline.lag_seconds is not None]
    return HealthSample(
        at=at,
        lag_seconds=max(lags, default=None),
        rows=sum(pipeline.rows_in for pipeline in pipelines),
        dead_letters=sum(pipeline.dead_letters for pipeline in pipelines),
    )


def record_sample(pipelines: Iterable[PipelineStatus], at: datetime) -> None:
    sample(pipelines, at).save(force_insert=True)
    HealthSample.objects.filter(at__lt=at - KEPT).delete()


def samples(since: datetime) -> list[HealthSample]:
    """Return the samples since a time, the oldest first."""
    return list(HealthSample.objects.filter(at__gte=since))
