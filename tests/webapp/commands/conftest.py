import importlib
import sys

import psycopg
import pytest
from psycopg import sql

from tests.users_project import Project
from tests.webapp.fixtures import connection, filled, flights, lasting, reader, reprocessing

__all__ = ["connection", "filled", "flights", "lasting", "reader", "reprocessing"]


@pytest.fixture
def conn(database_url):
    """A connection to the database of the commands, emptied of what earlier tests left."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for schema in ("tidegauge", "tidegauge_state", "tidegauge_live", "tidegauge_changelog"):
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        yield connection


@pytest.fixture
def project(conn, database_url, tmp_path):
    return Project(tmp_path, database_url)


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    """The project's folder as the working directory of this process, whose modules are forgotten afterwards."""
    project = Project(tmp_path, "")
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("TIDEGAUGE_HOME", str(project.folder / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.invalidate_caches()
    yield project.folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]
