"""Restores Django's test database after each test that commits.

Django's own flush takes 417 ms of CPU, most of it for permissions that it makes again, and it deletes the rows that
migrations insert, so that tests depended on which ran before. Restoring only what has changed takes about 25 ms.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection
from django.test import TransactionTestCase
from psycopg import sql

from tests.harness.costs import count

ROWS = ("public", "tidegauge")

# The name of the copy of the test database that tests/webapp/flights_database.py fills, after the name of the database.
COPY = "_copy"

TABLES = """
SELECT format('%%I.%%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname = ANY(%s) ORDER BY 1
"""

# A partition is dropped with its table, and a view with a table that it reads.
DROP_STATES = """
DO $$ DECLARE relation text; BEGIN
  FOR relation IN SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n
    ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND n.nspname IN ('tidegauge_state', 'tidegauge_live', 'tidegauge_changelog')
  LOOP EXECUTE 'DROP TABLE IF EXISTS ' || relation || ' CASCADE'; END LOOP;
END $$;
"""

# What `module_database` restores, too.
BASELINE = pytest.StashKey["Baseline"]()

# A test may have left a transaction open; the statement then fails here instead of waiting without end.
PATIENCE = "SET LOCAL lock_timeout = '20s';"


class Baseline:
    """The rows of a database as migrations left them, and the statements that bring them back."""

    def __init__(self, conn: psycopg.Connection, schema: str = "baseline") -> None:
        conn.execute(f"CREATE SCHEMA {schema}")
        tables = [row[0] for row in conn.execute(TABLES, [list(ROWS)]).fetchall()]
        kept = [f"{schema}.t{number}" for number in range(len(tables))]
        self._restore = "".join(self._restored(conn, *pair) for pair in zip(tables, kept, strict=True))

    def _restored(self, conn: psycopg.Connection, table: str, kept: str) -> str:
        row = conn.execute(f"SELECT EXISTS (SELECT FROM {table})").fetchone()
        if row != (True,):
            return f"DELETE FROM {table};"
        conn.execute(f"CREATE TABLE {kept} AS TABLE {table}")
        return (
            f"DELETE FROM {table} t WHERE t::text NOT IN (SELECT k::text FROM {kept} k);"
            f"INSERT INTO {table} OVERRIDING SYSTEM VALUE "
            f"SELECT * FROM {kept} k WHERE k::text NOT IN (SELECT t::text FROM {table} t);"
        )

    def restore(self, conn: psycopg.Connection) -> None:
        """Delete what was added, insert what was deleted, and drop the tables of states."""
        count("restores")
        with conn.transaction():
            conn.execute(PATIENCE + DROP_STATES + self._restore)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker, pytestconfig: pytest.Config) -> Iterator[None]:
    """Tests that commit are followed by Baseline.restore instead of a flush; and the database is copied once."""
    with django_db_blocker.unblock():
        connection.ensure_connection()
        baseline = pytestconfig.stash[BASELINE] = Baseline(connection.connection)

    def restore(test_case: TransactionTestCase) -> None:
        connection.ensure_connection()
        baseline.restore(connection.connection)

    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock(), _copied_database():
        patch.setattr(TransactionTestCase, "_fixture_teardown", restore)
        with django_db_blocker.block():
            yield


@pytest.fixture(scope="module")
def module_database(django_db_setup: None, django_db_blocker, pytestconfig: pytest.Config) -> Iterator[None]:
    """The database for tests that only read what a fixture of their module commits; restored after the last of them.

    They have no fixture of a database themselves, so pytest-django runs them after all that commit on their own.
    """
    with django_db_blocker.unblock():
        yield
        connection.ensure_connection()
        pytestconfig.stash[BASELINE].restore(connection.connection)


@contextmanager
def _copied_database() -> Iterator[None]:
    template, copy = (sql.Identifier(connection.settings_dict["NAME"] + suffix) for suffix in ("", COPY))
    connection.close()  # PostgreSQL copies no database that is in use; later a server of the tests may use it
    with connection._nodb_cursor() as cursor:
        cursor.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(copy, template))
    yield
    with connection._nodb_cursor() as cursor:
        cursor.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(copy))
