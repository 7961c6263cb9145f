"""How long the input of a pipeline may wait, and which share of its rows may be dead letters, before it is a problem.

Operators set limits of single pipelines in the admin; other pipelines have the limits in the settings. A process reads
them at most every LIMITS_SECONDS. Drivers do not judge pipelines, and their role may not read Django's tables.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from tidegauge.webapp.catalog.models import PipelineLimits
from tidegauge.webapp.core.cached import Cached

LIMITS_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """stale_seconds: how long input may wait. rejected_share: allowed share of recent rows, 0 to 1. None: no limit."""

    stale_seconds: float | None
    rejected_share: float | None


def limits_of(pipeline: str) -> Limits:
    own = own_limits().get(pipeline) or Limits(None, None)
    return Limits(
        settings.TIDEGAUGE_STALE_AFTER_SECONDS if own.stale_seconds is None else own.stale_seconds,
        settings.TIDEGAUGE_REJECTED_SHARE if own.rejected_share is None else own.rejected_share,
    )


def rename_limits(*, old: str, new: str) -> None:
    with transaction.atomic():
        # First, because `pipeline` is unique, and a deleted pipeline may have left limits under the new name.
        PipelineLimits.objects.filter(pipeline=new).delete()
        PipelineLimits.objects.filter(pipeline=old).update(pipeline=new)
    own_limits.clear()


def _read() -> dict[str, Limits]:
    rows = PipelineLimits.objects.values_list("pipeline", "stale_seconds", "rejected_share")
    return {pipeline: Limits(stale, share) for pipeline, stale, share in rows}


own_limits = Cached(_read, LIMITS_SECONDS)
