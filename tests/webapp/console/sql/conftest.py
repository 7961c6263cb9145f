from collections.abc import Iterator
from secrets import token_hex

import pytest
from django.contrib.auth.models import Permission
from django.db import connection as django_connection
from django.test import Client

from tests.webapp.fixtures import lasting, reader
from tidegauge.state_backends.schema import sql_role
from tidegauge.webapp.catalog import readers

__all__ = ["lasting", "reader"]

PASSWORD = token_hex(16)


@pytest.fixture(scope="module")
def made_role(django_db_setup, django_db_blocker) -> Iterator[str]:
    """The role for SQL in the tests' database."""
    with django_db_blocker.unblock(), readers.own_connection() as conn:
        name = sql_role.make(conn, PASSWORD)
    yield name
    with django_db_blocker.unblock(), readers.own_connection() as conn:
        conn.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())
    django_connection.close()


@pytest.fixture
def role(made_role, db, settings) -> str:
    """The name of the role, which is also in the settings."""
    settings.TIDEGAUGE_SQL = address_of(made_role)
    return made_role


def address_of(role: str, password: str = PASSWORD) -> dict[str, str]:
    parts = readers.plain_parameters()
    return {name: str(parts[name]) for name in ("host", "port", "dbname")} | {"user": role, "password": password}


@pytest.fixture
def analyst(reader, django_user_model) -> Client:
    """The reader, who may also run SQL."""
    user = django_user_model.objects.get(username="reader")
    user.user_permissions.add(Permission.objects.get(codename="run_sql"))
    return reader
