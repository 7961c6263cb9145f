"""The library's tables, version 4: what people set of a state, and the ttls that a batch goes by."""

from django.db import migrations

from state_backends.schema.install import install


def install_tables(apps, schema_editor):
    install(schema_editor.connection.connection)


class Migration(migrations.Migration):
    dependencies = [("states", "0004_life_of_a_query")]
    operations = [migrations.RunPython(install_tables, migrations.RunPython.noop, elidable=False)]
