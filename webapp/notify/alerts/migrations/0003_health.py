from django.conf import settings
from django.db import migrations, models
from django.db.models.deletion import SET_NULL


def rename_well(apps, schema_editor):
    """All good verdicts were recorded as `running`, which is also one of them."""
    apps.get_model("tidegauge_alerts", "VerdictPeriod").objects.filter(verdict="running").update(verdict="well")


def rename_running(apps, schema_editor):
    apps.get_model("tidegauge_alerts", "VerdictPeriod").objects.filter(verdict="well").update(verdict="running")


class Migration(migrations.Migration):
    dependencies = [
        ("tidegauge_alerts", "0002_schedule"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunPython(rename_well, rename_running),
        migrations.CreateModel(
            name="Acknowledgement",
            fields=[
                ("pipeline", models.TextField(primary_key=True, serialize=False)),
                ("verdict", models.TextField()),
                ("at", models.DateTimeField(auto_now=True)),
                (
                    "by",
                    models.ForeignKey(
                        null=True,
                        on_delete=SET_NULL,
                        related_name="acknowledgements",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"ordering": ["pipeline"]},
        ),
        migrations.CreateModel(
            name="HealthSample",
            fields=[
                ("at", models.DateTimeField(primary_key=True, serialize=False)),
                ("lag_seconds", models.FloatField(null=True)),
                ("rows", models.BigIntegerField()),
                ("dead_letters", models.BigIntegerField()),
            ],
            options={"default_permissions": (), "ordering": ["at"]},
        ),
    ]
