"""The library creates its own tables; Django only records their models."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=False),
        migrations.CreateModel(
            name="Batch",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("txid", models.BigIntegerField()),
                ("attempt", models.IntegerField()),
                ("batch_id", models.BigIntegerField()),
                ("fence", models.BigIntegerField()),
                ("batch_time", models.DateTimeField()),
                ("started_at", models.DateTimeField()),
                ("committed_at", models.DateTimeField(null=True)),
                ("offsets", models.JSONField(null=True)),
                ("rows_in", models.BigIntegerField(null=True)),
                ("keys_written", models.JSONField(null=True)),
                ("dead_letters", models.BigIntegerField()),
            ],
            options={
                "verbose_name_plural": "batches",
                "db_table": '"tidegauge"."batch"',
                "ordering": ["pipeline", "-txid"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("txid", models.BigIntegerField()),
                ("state", models.TextField()),
                ("part", models.IntegerField()),
                ("source", models.TextField()),
                ("line_number", models.BigIntegerField(null=True)),
                ("line", models.TextField()),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "db_table": '"tidegauge"."dead_letter"',
                "ordering": ["-id"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Pipeline",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("description", models.TextField()),
                ("spout", models.TextField()),
                ("fence", models.BigIntegerField()),
                ("checkpoint_id", models.TextField(null=True)),
                ("committed_txid", models.BigIntegerField()),
                ("committed_attempt", models.IntegerField()),
                ("committed_batch_id", models.BigIntegerField()),
                ("committed_time", models.DateTimeField(null=True)),
                ("open_txid", models.BigIntegerField(null=True)),
                ("open_attempt", models.IntegerField(null=True)),
                ("open_batch_id", models.BigIntegerField(null=True)),
                ("open_time", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": '"tidegauge"."pipeline"',
                "ordering": ["name"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="MaintenanceRun",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.TextField(choices=[("compaction", "Compaction"), ("expiry", "Expiry")])),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="queued",
                    ),
                ),
                ("requested_by", models.TextField()),
                ("requested_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("cancel_requested", models.BooleanField(default=False)),
                ("progress", models.JSONField(default=dict)),
                ("before", models.JSONField(default=dict)),
                ("after", models.JSONField(default=dict)),
                ("error", models.TextField(default="")),
            ],
            options={
                "db_table": '"tidegauge"."maintenance_run"',
                "ordering": ["-id"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="State",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("definition", models.JSONField()),
                ("version", models.IntegerField()),
                ("ttl", models.DurationField(null=True)),
                ("guarantee", models.TextField()),
                ("since_txid", models.BigIntegerField()),
                ("oldest_txid", models.BigIntegerField()),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": '"tidegauge"."state"',
                "ordering": ["name"],
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Driver",
            fields=[
                (
                    "pipeline",
                    models.OneToOneField(
                        db_column="pipeline",
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="driver",
                        serialize=False,
                        to="states.pipeline",
                    ),
                ),
                ("host", models.TextField()),
                ("pid", models.IntegerField()),
                ("since", models.DateTimeField()),
                ("status", models.TextField()),
                ("message", models.TextField()),
                ("progress", models.JSONField()),
                ("updated_at", models.DateTimeField()),
            ],
            options={
                "db_table": '"tidegauge"."driver"',
                "managed": False,
            },
        ),
    ]
