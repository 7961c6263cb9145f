"""Tells the database roles which tables the web application has, and resets their privileges after `migrate`."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.recorder import MigrationRecorder

from tidegauge.state_backends.schema import roles
from tidegauge.state_backends.schema.roles import DjangoTables
from tidegauge.webapp.accounts.audit.models import AuditEntry


def django_tables() -> DjangoTables:
    """Return the tables of the web application, existing or not."""
    recorded = MigrationRecorder.Migration._meta.db_table
    names = connections[DEFAULT_DB_ALIAS].introspection.django_table_names(include_views=False)
    return DjangoTables([*names, recorded], read_only=[recorded], append_only=[AuditEntry._meta.db_table])


def regrant(using: str = DEFAULT_DB_ALIAS, **_: Any) -> None:
    """Reset the privileges of the database's roles, if it has any, because a migration may have created tables."""
    connection = connections[using]
    connection.ensure_connection()
    conn = connection.connection
    with conn.transaction():
        found = roles.of_database(conn)
        if found is not None:
            roles.regrant(conn, found, django_tables())
