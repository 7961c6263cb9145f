"""The function of the index of timers: the library's migration 0003."""

from django.db import migrations

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0007_epochs")]
    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True)]
