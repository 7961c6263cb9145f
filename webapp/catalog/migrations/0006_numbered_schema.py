"""Installations that applied 0001 to 0005 get the library's numbered migrations."""

from django.db import migrations

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0005_edits_of_states")]
    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True)]
