"""What became of states and pipelines that were retired or renamed: the library's migration 0004."""

from django.db import migrations, models

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0008_timers")]
    operations = [
        migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True),
        migrations.CreateModel(
            name="Former",
            fields=[("id", models.BigIntegerField(primary_key=True, serialize=False))],
            options={"db_table": '"tidegauge"."former"', "ordering": ["-at"], "managed": False},
        ),
    ]
