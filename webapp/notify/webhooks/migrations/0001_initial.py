import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        # If the database user is called `tidegauge`, these tables are in the schema that states creates.
        ("states", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=100, unique=True)),
                ("url", models.CharField(max_length=2000, verbose_name="URL")),
                (
                    "kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("commit", "commit: a batch has changed a state"),
                                ("maintenance", "maintenance: a run is done or has failed"),
                                (
                                    "alert",
                                    "alert: a pipeline or state has a problem, as alert rules that name this webhook say",
                                ),
                            ],
                            max_length=16,
                        ),
                        size=None,
                    ),
                ),
                (
                    "states",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), blank=True, default=list, size=None
                    ),
                ),
                ("keys", models.JSONField(blank=True, default=list)),
                ("key_prefix", models.JSONField(blank=True, default=list)),
                ("enabled", models.BooleanField(default=True)),
                ("secret", models.CharField(editable=False, max_length=100)),
                ("previous_secret", models.CharField(blank=True, editable=False, max_length=100)),
                ("previous_until", models.DateTimeField(editable=False, null=True)),
                ("failures", models.PositiveIntegerField(default=0, editable=False)),
                ("rests_until", models.DateTimeField(editable=False, null=True)),
                ("problem", models.TextField(blank=True, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "created_by",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="webhooks",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "mail_to",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.EmailField(max_length=254), default=list, size=None
                    ),
                ),
                ("subject", models.TextField(blank=True)),
                ("message_id", models.CharField(max_length=40, unique=True)),
                ("event", models.CharField(max_length=40)),
                ("source", models.TextField(null=True)),
                ("body", models.TextField()),
                (
                    "status",
                    models.CharField(
                        choices=[("pending", "Pending"), ("delivered", "Delivered"), ("dead", "Dead")],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("log", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "webhook",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="webhooks.webhook",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("status", "pending")),
                        fields=["webhook", "next_attempt_at", "id"],
                        name="pending_deliveries",
                    ),
                    models.Index(fields=["webhook", "status"], name="deliveries_by_status"),
                    models.Index(fields=["finished_at"], name="deliveries_by_age"),
                ],
                "constraints": [models.UniqueConstraint(fields=("webhook", "source"), name="one_message_per_source")],
            },
        ),
        migrations.CreateModel(
            name="Cursor",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("topic", models.TextField()),
                ("position", models.JSONField()),
                (
                    "webhook",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="cursors", to="webhooks.webhook"
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=("webhook", "topic"), name="one_cursor_per_topic")],
            },
        ),
    ]
