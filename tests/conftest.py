"""The servers of the tests: this run's own PostgreSQL and Redis, unless the environment names others.

They start when this file is imported, before Django reads its settings. Each run has a private data folder, which is
removed at the end.
"""

import os
import signal
from collections.abc import Iterator

import psycopg
import pytest

from pipelines.embedded.temporary import start_temporary_servers, temporary_database
from pipelines.errors import RuntimeSetupError
from tests.java_options import set_java_options

pytest_plugins = ["tidemark.testing.fixtures"]


def start_servers() -> None:
    try:
        start_temporary_servers()
    except RuntimeSetupError as error:
        pytest.exit(f"no servers for the tests: {error}", returncode=1)


# SIGTERM stops the run's servers, as Ctrl-C does.
signal.signal(signal.SIGTERM, signal.default_int_handler)
start_servers()
set_java_options()
# Not in pyproject.toml: pytest-django would read the settings before the servers have an address.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    """The URL of an empty database that this test module has to itself."""
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        yield url


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection to the module's database; every statement is its own transaction."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection
