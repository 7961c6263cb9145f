"""The library's tables, again: what has been added to them since they were first installed."""

from django.db import migrations

from state_backends.schema.install import install


def install_tables(apps, schema_editor):
    install(schema_editor.connection.connection)


class Migration(migrations.Migration):
    dependencies = [("states", "0002_schedule")]
    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=True)]
