import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        # If the database user is called `tidegauge`, these tables are in the schema that states creates.
        ("states", "0001_initial"),
        ("webhooks", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="LastCheck",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="AlertRule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, unique=True)),
                (
                    "pipelines",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "states",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "verdicts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("lag_seconds", models.FloatField(blank=True, null=True)),
                ("pending_input", models.PositiveBigIntegerField(blank=True, null=True)),
                ("rejected_share", models.FloatField(blank=True, null=True)),
                ("event_age_seconds", models.FloatField(blank=True, null=True)),
                ("batch_gap_seconds", models.FloatField(blank=True, null=True)),
                ("batch_seconds", models.FloatField(blank=True, null=True)),
                ("after_seconds", models.PositiveIntegerField(default=60)),
                (
                    "mail_to",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.EmailField(max_length=254), blank=True, default=list, size=None
                    ),
                ),
                ("enabled", models.BooleanField(default=True)),
                ("sent_at", models.DateTimeField(editable=False, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("webhooks", models.ManyToManyField(blank=True, related_name="alert_rules", to="webhooks.webhook")),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Silence",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pipeline", models.TextField(blank=True)),
                ("until", models.DateTimeField()),
                ("reason", models.CharField(blank=True, max_length=200)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="silences",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "rule",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="silences",
                        to="tidegauge_alerts.alertrule",
                    ),
                ),
            ],
            options={
                "ordering": ["-until"],
            },
        ),
        migrations.CreateModel(
            name="VerdictPeriod",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pipeline", models.TextField()),
                ("verdict", models.TextField()),
                ("reason", models.TextField()),
                ("began_at", models.DateTimeField()),
                ("until", models.DateTimeField()),
                ("is_current", models.BooleanField(default=True)),
            ],
            options={
                "ordering": ["-began_at", "-id"],
                "default_permissions": (),
                "indexes": [models.Index(fields=["pipeline", "-began_at"], name="verdicts_of_a_pipeline")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("is_current", True)), fields=("pipeline",), name="one_current_verdict"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("pipeline", models.TextField()),
                ("state", models.TextField(blank=True)),
                ("figure", models.TextField(blank=True, db_default="")),
                ("verdict", models.TextField()),
                ("reason", models.TextField()),
                ("began_at", models.DateTimeField()),
                ("well_since", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("told", models.TextField(blank=True)),
                (
                    "rule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="tidegauge_alerts.alertrule",
                    ),
                ),
            ],
            options={
                "ordering": ["-began_at", "-id"],
                "indexes": [models.Index(fields=["pipeline", "-began_at"], name="alerts_of_a_pipeline")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("rule", "pipeline", "state", "figure"),
                        name="one_open_alert_of_a_rule",
                    )
                ],
            },
        ),
    ]
