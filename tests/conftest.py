"""A database for each module; the servers are of tests/harness/servers.py."""

import os
from collections.abc import Iterator

import psycopg
import pytest

from tests.harness.costs import count
from tidegauge.pipelines.embedded.temporary import temporary_database

pytest_plugins = ["tidegauge.testing.fixtures", "tests.harness.reset", "tests.webapp.processes"]


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    """The URL of an empty database that this test module has to itself."""
    count("databases")
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        yield url


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection to the module's database; every statement is its own transaction."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection
