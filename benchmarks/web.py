"""Shared by the benchmarks of lookups: a filled state, an API key, requests for its keys, and servers for them."""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from benchmarks.http_client import request_once
from benchmarks.rows import KEYS, SALES, batch
from benchmarks.servers import database_url
from tidegauge.pipelines.embedded.data_dir import REPOSITORY, free_port
from tidegauge.state_backends import BatchLedger, Catalog, PostgresBackingMap
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.webapp.serving import process_commands

KEYS_PER_LOOKUP = 100
CONNECTIONS = 4
WORKERS = 2
BODIES = 16  # more than one, so that a cached response does not help
LOOKUP = f"/api/v1/states/{SALES.name}/lookup"
SERVED_WITHIN_SECONDS = 60.0


def fill(conn: psycopg.Connection) -> None:
    """Create the state and commit one batch."""
    Catalog(conn).register_pipeline("bench", spout="transactional")
    ledger = BatchLedger(conn, "bench")
    ledger.acquire()
    Catalog(conn).register_states("bench", [SALES], {SALES.name: "exactly once"})
    ledger.bind("benchmark")
    opened = ledger.begin(0, spout="transactional")
    assert opened is not None
    with conn.transaction():
        lock_fence(conn, opened)
        PostgresBackingMap(conn, SALES).merge([batch(0)], opened.txid, datetime.now(UTC))
    ledger.commit(opened, rows_in=KEYS, keys_written={SALES.name: KEYS})
    conn.execute("VACUUM ANALYZE")


def web_environ(conn: psycopg.Connection) -> dict[str, str]:
    """Return the environment of a web process on a connection's database, with production settings."""
    url = database_url(conn)
    return os.environ | {
        "DATABASE_URL": url,
        "SECRET_KEY": "for-benchmarks-and-nothing-else-0123",
        "LOG_FORMAT": "json",
        "DEBUG": "0",
    }


def migrate_and_make_key(environ: Mapping[str, str]) -> str:
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], cwd=REPOSITORY, env=dict(environ), check=True)
    # The rate limit is high, so that it is checked but never reached.
    key = subprocess.run(
        [*manage, "create_api_key", "benchmark", "--rate", "6000000"],
        cwd=REPOSITORY, env=dict(environ), check=True, capture_output=True, text=True,
    )  # fmt: skip
    return key.stdout.strip()


def shops_asked(seed: int, count: int = KEYS_PER_LOOKUP) -> list[str]:
    """Return the keys of one lookup."""
    shops: list[str] = random.Random(seed).sample(batch(0).column("shop").to_pylist(), count)
    return shops


def lookup_body(seed: int, count: int = KEYS_PER_LOOKUP) -> bytes:
    return json.dumps({"keys": [[shop] for shop in shops_asked(seed, count)]}).encode()


@contextmanager
def served_by_granian(environ: Mapping[str, str], options: Sequence[str] = process_commands.WEB) -> Iterator[int]:
    """Serve the web process, or the application in `options`; yield the port."""
    port = free_port()
    command = process_commands.web(port, workers=WORKERS, options=options)
    with served(command, port, environ, REPOSITORY):
        yield port


@contextmanager
def served(command: Sequence[str], port: int, environ: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Run a web server during the block, which begins once it answers. Its log is printed if the block fails."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=folder, env=dict(environ), stdout=log, stderr=log)
        try:
            _await_answer(port, process)
            yield
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            process.terminate()
            process.wait()


def _await_answer(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SERVED_WITHIN_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            request_once(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return
        except ConnectionError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")
