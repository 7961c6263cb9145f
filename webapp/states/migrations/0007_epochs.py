"""Epochs, fingerprints of input, and who works on a state's tables: the library's migration 0002."""

from django.db import migrations, models

from webapp.states.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0006_numbered_schema")]
    operations = [
        migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True),
        migrations.CreateModel(
            name="Reprocess",
            fields=[("id", models.BigIntegerField(primary_key=True, serialize=False))],
            options={
                "verbose_name_plural": "reprocesses",
                "db_table": '"tidemark"."reprocess"',
                "ordering": ["-id"],
                "managed": False,
            },
        ),
    ]
