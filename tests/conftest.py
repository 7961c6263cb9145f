"""The servers of the tests: this run's own PostgreSQL and Redis, unless the environment names others.

They start when this file is imported, before Django reads its settings. Each run has a private data folder, which is
removed at the end.
"""

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from pipelines.embedded import servers
from pipelines.embedded.shared_server import SharedServer
from pipelines.errors import RuntimeSetupError

PREFIX = "tidemark-tests-"


def remove_abandoned_servers() -> None:
    """Stop and delete the servers of test runs that were killed."""
    for home in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # A younger folder may belong to a run that has not started its servers yet.
        if os.access(home, os.W_OK) and home.stat().st_mtime < time.time() - 60:
            shared = [SharedServer(server(home)) for server in servers.SERVERS.values()]
            if all(server.stop_if_unused() for server in shared):
                shutil.rmtree(home, ignore_errors=True)


def start_servers() -> None:
    home = Path(tempfile.mkdtemp(prefix=PREFIX))
    # Exit handlers run backwards: the servers stop, then their folder goes.
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["TIDEMARK_HOME"] = str(home)
    try:
        servers.ensure_servers(durable=False)
    except RuntimeSetupError as error:
        pytest.exit(f"no servers for the tests: {error}", returncode=1)


# SIGTERM stops the run's servers, as Ctrl-C does.
signal.signal(signal.SIGTERM, signal.default_int_handler)
remove_abandoned_servers()
start_servers()
# Not in pyproject.toml: pytest-django would read the settings before the servers have an address.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")


@pytest.fixture(scope="module")
def database_url() -> Iterator[str]:
    """The URL of an empty database that this test module has to itself."""
    server = os.environ["DATABASE_URL"]
    name = f"tidemark_test_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield urlsplit(server)._replace(path=f"/{name}").geturl()
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection]:
    """A connection to the module's database; every statement is its own transaction."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection
