"""The library's tables, version 3: what is wished of a pipeline, and more figures per batch and driver."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from state_backends.schema.install import install


def install_tables(apps, schema_editor):
    install(schema_editor.connection.connection)


class Migration(migrations.Migration):
    dependencies = [("states", "0003_install_again")]

    operations = [
        migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=False),
        migrations.CreateModel(
            name="PipelineWish",
            fields=[
                (
                    "pipeline",
                    models.OneToOneField(
                        db_column="pipeline",
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="wish",
                        serialize=False,
                        to="states.pipeline",
                    ),
                ),
                ("paused", models.BooleanField()),
                ("requested_by", models.TextField()),
                ("requested_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "verbose_name_plural": "pipeline wishes",
                "db_table": '"tidemark"."pipeline_wish"',
                "managed": False,
            },
        ),
    ]
