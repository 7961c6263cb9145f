"""Schedules the check of the pipelines; from then on the schedule is edited in the admin."""

from django.db import migrations
from django.utils import timezone

NAME = "Check pipelines"
EVERY_SECONDS = 15


def add_schedule(apps, schema_editor):
    interval = apps.get_model("django_celery_beat", "IntervalSchedule")
    task = apps.get_model("django_celery_beat", "PeriodicTask")
    every = {"every": EVERY_SECONDS, "period": "seconds"}
    # Not get_or_create, because the table may have several equal intervals.
    schedule = interval.objects.filter(**every).first() or interval.objects.create(**every)
    # A task expires after one interval, so that busy workers do not find a queue of them.
    defaults = {"task": "alerts.check", "interval": schedule, "expire_seconds": EVERY_SECONDS}
    task.objects.get_or_create(name=NAME, defaults=defaults)
    # So that a schedule that never runs is reported as stopped, too.
    apps.get_model("tidegauge_alerts", "LastCheck").objects.get_or_create(pk=1, defaults={"at": timezone.now()})


def remove_schedule(apps, schema_editor):
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("tidegauge_alerts", "0001_initial"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(add_schedule, remove_schedule)]
