"""Until when rows have expired, and locks that two names cannot share: the library's migration 0007."""

from django.db import migrations

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0015_pipeline_limits")]
    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True)]
