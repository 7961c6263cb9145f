"""Epochs, fingerprints of input, and who works on a state's tables: the library's migration 0002."""

from django.db import migrations, models

from tidegauge.webapp.catalog.migrations import install_tables

AUDIT = "Audit states with a changelog"


def add_audit(apps, schema_editor):
    """Offer the audit in the schedule, disabled: it reads tables at random, which not everyone wants."""
    interval = apps.get_model("django_celery_beat", "IntervalSchedule")
    daily = interval.objects.filter(every=1, period="days").first() or interval.objects.create(every=1, period="days")
    apps.get_model("django_celery_beat", "PeriodicTask").objects.get_or_create(
        name=AUDIT,
        defaults={"task": "states.maintain_all", "interval": daily, "args": '["audit"]', "enabled": False},
    )


def remove_audit(apps, schema_editor):
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=AUDIT).delete()


class Migration(migrations.Migration):
    dependencies = [("states", "0006_numbered_schema")]
    operations = [
        migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True),
        migrations.RunPython(add_audit, remove_audit),
        migrations.CreateModel(
            name="Reprocess",
            fields=[("id", models.BigIntegerField(primary_key=True, serialize=False))],
            options={
                "verbose_name_plural": "reprocesses",
                "db_table": '"tidegauge"."reprocess"',
                "ordering": ["-id"],
                "managed": False,
            },
        ),
    ]
