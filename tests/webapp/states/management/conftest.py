import psycopg
import pytest
from psycopg import sql

from tests.users_project import Project


@pytest.fixture
def conn(database_url):
    """A connection to the database of the commands, emptied of what earlier tests left."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for schema in ("tidemark", "tidemark_state", "tidemark_live", "tidemark_changelog"):
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        yield connection


@pytest.fixture
def project(conn, database_url, tmp_path):
    return Project(tmp_path, database_url)
