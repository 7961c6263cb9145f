"""What the upkeep of states does to the history: what is old is deleted, and a renamed pipeline keeps its own."""

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from webapp.alerts.models import VerdictPeriod

# Of one pipeline, whatever their age: one that changes with each look has 5,760 in a day.
MOST_PERIODS = 5_000


def forget_old() -> int:
    """Delete what is older than TIDEMARK_ALERTS_KEEP_DAYS, and periods beyond MOST_PERIODS of a pipeline."""
    oldest = timezone.now() - timedelta(days=settings.TIDEMARK_ALERTS_KEEP_DAYS)
    place = Window(RowNumber(), partition_by="pipeline", order_by=[F("began_at").desc(), F("id").desc()])
    beyond = VerdictPeriod.objects.annotate(place=place).filter(place__gt=MOST_PERIODS).order_by()
    old = VerdictPeriod.objects.filter(until__lt=oldest, is_current=False).delete()[0]
    return old + VerdictPeriod.objects.filter(pk__in=list(beyond.values_list("pk", flat=True))).delete()[0]


def rename_pipeline(*, old: str, new: str) -> None:
    """Let a pipeline keep its history under its new name."""
    with transaction.atomic():
        VerdictPeriod.objects.filter(pipeline=new).delete()
        VerdictPeriod.objects.filter(pipeline=old).update(pipeline=new)
