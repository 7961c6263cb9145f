"""Replay of dead letters: the library's migration 0005."""

from django.db import migrations

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0009_former_names")]
    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True)]
