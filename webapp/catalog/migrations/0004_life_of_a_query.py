"""The model of pipeline_wish; its table is the library's."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("states", "0003_install_again")]

    operations = [
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
                "db_table": '"tidegauge"."pipeline_wish"',
                "managed": False,
            },
        ),
    ]
