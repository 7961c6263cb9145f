from django.db import migrations

from tidegauge.webapp.catalog.migrations import install_tables


class Migration(migrations.Migration):
    dependencies = [("states", "0003_driver_start")]

    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop)]
