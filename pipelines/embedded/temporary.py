"""Servers for one test run, and a database for each test.

The servers' folder is removed when the process ends. If a run is killed, the next run removes its servers and folder.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from tidegauge.pipelines.embedded import servers
from tidegauge.pipelines.embedded.data_dir import folder_until_exit
from tidegauge.pipelines.embedded.shared_server import SharedServer
from tidegauge.pipelines.errors import RuntimeSetupError

PREFIX = "tidegauge-tests-"

# A younger folder may belong to a run that has not started its servers yet.
SETTLED_SECONDS = 60


def start_temporary_servers(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set `DATABASE_URL` and `REDIS_URL`, if they are unset, to servers that end with this process.

    Their data folder becomes `TIDEGAUGE_HOME`. To be fast, they may lose their data if the machine crashes.
    Raises RuntimeSetupError if a server cannot be started.
    """
    remove_abandoned_servers()
    # Made first, so that it is removed last: exit handlers run in reverse order, and the servers must stop before it.
    home = folder_until_exit(PREFIX)
    environ["TIDEGAUGE_HOME"] = str(home)
    servers.ensure_servers(environ, durable=False)


def remove_abandoned_servers() -> None:
    """Stop and delete the servers of test runs that were killed."""
    for home in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if os.access(home, os.W_OK) and home.stat().st_mtime < time.time() - SETTLED_SECONDS:
            shared = [SharedServer(server(home)) for server in servers.SERVERS.values()]
            if all(server.stop_if_unused() for server in shared):
                shutil.rmtree(home, ignore_errors=True)


def server_url() -> str:
    """Return `DATABASE_URL`. If it is unset, start a server that ends with this process, and return its URL."""
    if not os.environ.get("DATABASE_URL"):
        start_temporary_servers()
    return os.environ["DATABASE_URL"]


@contextmanager
def temporary_database(server: str) -> Iterator[str]:
    """Create an empty database on the server of this URL; yield its URL, and drop it at the end.

    Raises RuntimeSetupError if the role may not create databases.
    """
    name = f"tidegauge_test_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as admin:
        try:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except psycopg.errors.InsufficientPrivilege as error:
            raise RuntimeSetupError(
                "each test needs a database of its own, and the role in DATABASE_URL may not create one; run ALTER "
                "ROLE .. CREATEDB, use another role, or unset DATABASE_URL to start an embedded server"
            ) from error
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
