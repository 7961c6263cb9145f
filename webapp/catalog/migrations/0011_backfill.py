"""The history that a pipeline counts before its own source: the library's migration 0006."""

from django.db import migrations

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0010_replay")]
    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True)]
