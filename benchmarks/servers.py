"""The servers for benchmarks: from the environment, else embedded ones with production settings."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import redis
from psycopg import sql

from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.embedded.servers import ensure_servers
from tidegauge.state_backends import Catalog

UNLINKED = 10_000  # keys per command


@contextmanager
def database() -> Iterator[psycopg.Connection]:
    """Yield a connection like that of a task to a new database with Tidegauge's tables, and drop it afterwards."""
    url = _url("DATABASE_URL")
    name = f"tidegauge_bench_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            with connect(urlsplit(url)._replace(path=f"/{name}").geturl(), "benchmark") as conn:
                Catalog(conn).install()
                yield conn
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def database_url(conn: psycopg.Connection) -> str:
    """Return the URL of a connection's database."""
    return urlsplit(_url("DATABASE_URL"))._replace(path=f"/{conn.info.dbname}").geturl()


@contextmanager
def redis_client() -> Iterator[redis.Redis]:
    """Yield a client, and delete the keys that match `tidegauge:*bench*` afterwards."""
    client = redis.Redis.from_url(_url("REDIS_URL"))
    try:
        yield client
    finally:
        keys = client.scan_iter("tidegauge:*bench*", count=UNLINKED)
        while some := list(islice(keys, UNLINKED)):
            client.unlink(*some)
        client.close()


def _url(variable: str) -> str:
    if variable not in os.environ:
        if "TIDEGAUGE_HOME" not in os.environ:
            os.environ["TIDEGAUGE_HOME"] = tempfile.mkdtemp(prefix="tidegauge-bench-")
            # Registered before the servers start, because exit handlers run in reverse order: the servers must stop
            # before their folder is removed.
            atexit.register(shutil.rmtree, os.environ["TIDEGAUGE_HOME"], ignore_errors=True)
        ensure_servers()
    return os.environ[variable]
