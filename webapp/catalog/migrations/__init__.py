"""Django's view of the library's tables. state_backends/schema/install.py says how to add a migration."""

from tidegauge.state_backends.schema.install import install


def install_tables(apps, schema_editor):
    """Bring the library's tables up to date. Does nothing if a driver or an earlier migration has done so."""
    schema_editor.connection.ensure_connection()
    install(schema_editor.connection.connection)
