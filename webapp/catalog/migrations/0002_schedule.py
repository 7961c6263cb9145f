"""The schedule that an installation starts with; operators edit it in the admin from then on."""

from django.db import migrations

# The audit is disabled, because it reads tables at random positions, and not every installation wants that load.
SCHEDULE = {
    "Compact all states": ("compaction", 1, "hours", True),
    "Expire rows past their time": ("expiry", 10, "minutes", True),
    "Audit states with a changelog": ("audit", 1, "days", False),
}


def add_schedule(apps, schema_editor):
    interval = apps.get_model("django_celery_beat", "IntervalSchedule")
    task = apps.get_model("django_celery_beat", "PeriodicTask")
    for name, (kind, every, period, enabled) in SCHEDULE.items():
        # Not get_or_create, because several equal intervals may exist: the table has no unique constraint.
        schedule = interval.objects.filter(every=every, period=period).first()
        schedule = schedule or interval.objects.create(every=every, period=period)
        defaults = {"task": "states.maintain_all", "interval": schedule, "args": f'["{kind}"]', "enabled": enabled}
        task.objects.get_or_create(name=name, defaults=defaults)


def remove_schedule(apps, schema_editor):
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name__in=SCHEDULE).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("states", "0001_initial"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(add_schedule, remove_schedule)]
