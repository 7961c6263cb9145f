"""Deletes old history and alerts, and keeps them when a state or pipeline gets a new name. Signals call it."""

from datetime import timedelta
from typing import Any

import psycopg
from django.conf import settings
from django.db import transaction
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils import timezone
from psycopg import sql

from tidegauge.webapp.notify.alerts.models import Acknowledgement, Alert, AlertRule, Silence, VerdictPeriod

# Per pipeline, whatever their age, because a verdict that changes at each check adds 5,760 a day.
MOST_PERIODS = 5_000


def forget_old(**_: Any) -> None:
    """Delete what ended more than TIDEGAUGE_KEEP_DAYS ago, and all but the newest MOST_PERIODS of a pipeline."""
    oldest = timezone.now() - timedelta(days=settings.TIDEGAUGE_KEEP_DAYS)
    VerdictPeriod.objects.filter(until__lt=oldest, is_current=False).delete()
    Alert.objects.filter(ended_at__lt=oldest).delete()
    Silence.objects.filter(until__lt=oldest).delete()
    place = Window(RowNumber(), partition_by="pipeline", order_by=[F("began_at").desc(), F("id").desc()])
    beyond = VerdictPeriod.objects.annotate(place=place).filter(place__gt=MOST_PERIODS).order_by()
    VerdictPeriod.objects.filter(pk__in=list(beyond.values_list("pk", flat=True))).delete()


def rename_pipeline(*, old: str, new: str, **_: Any) -> None:
    """Move history, alerts, rules and silences to the new name, replacing leftovers of a deleted pipeline."""
    with transaction.atomic():
        for of_former in (VerdictPeriod, Alert, Acknowledgement):
            of_former.objects.filter(pipeline=new).delete()
        for model in (VerdictPeriod, Alert, Acknowledgement, Silence):
            model.objects.filter(pipeline=old).update(pipeline=new)
        for rule in AlertRule.objects.filter(pipelines__contains=[old]).select_for_update():
            rule.pipelines = [new if each == old else each for each in rule.pipelines]
            rule.save(update_fields=["pipelines"])


def rename_state(*, conn: psycopg.Connection, old: str, new: str, **_: Any) -> None:
    """Update rules and alerts when a state is renamed, in the caller's transaction.

    Alerts of a dropped state that had the new name are deleted.
    """
    rules, alerts = (sql.Identifier(model._meta.db_table) for model in (AlertRule, Alert))
    conn.execute(
        sql.SQL("UPDATE {} SET states = array_replace(states, %s, %s) WHERE %s = ANY(states)").format(rules),
        [old, new, old],
    )
    conn.execute(sql.SQL("DELETE FROM {} WHERE state = %s").format(alerts), [new])
    conn.execute(sql.SQL("UPDATE {} SET state = %s WHERE state = %s").format(alerts), [new, old])
