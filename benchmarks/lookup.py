"""lookup: 100 keys over HTTP, compared with a bare Django view that runs the same statement, and with pgbench.

The lookup has an API key, its rate limit in Redis, the log, the metrics and all middleware. Both views are served by
granian with the same options, and measured in turn. A poll is a lookup whose client has the result already: a 304.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict

from benchmarks.cases import ROUNDS, Case, compared, side_by_side
from benchmarks.http_client import post, request_all, request_once
from benchmarks.rows import KEYS, SALES, batch
from benchmarks.servers import database, database_url, redis_client
from pipelines.embedded.data_dir import REPOSITORY, free_port
from state_backends import BatchLedger, Catalog, PostgresBackingMap, StateReader
from state_backends.batch import lock_fence

KEYS_PER_LOOKUP = 100
CONNECTIONS = 4
REQUESTS = 1_500  # per case and round, about two seconds
POLLS_ALONE = 500
BODIES = 16  # different ones, so that a cached response does not help
SERVED_WITHIN_SECONDS = 60.0
QUERY = f"/api/v1/states/{SALES.name}/query"
# Sum and count of the durations that the process itself has measured for this route.
SERVER_SECONDS = re.compile(r'^tidemark_http_request_seconds_(sum|count)\{route="lookup:query"\} (\S+)$', re.MULTILINE)


def run(requests: int = REQUESTS) -> Iterable[Case]:
    with database() as conn, redis_client(), ExitStack() as servers:
        fill(conn)
        environ = _environ(conn)
        key = _migrate_and_make_key(environ)
        real = servers.enter_context(served("webapp.wsgi:application", environ))
        bare = servers.enter_context(served("benchmarks.bare_django:application", environ))
        bodies = [_body(seed) for seed in range(BODIES)]
        lookups = [post(QUERY, body, Authorization=f"Bearer {key}") for body in bodies]
        plain = [post("/query", body) for body in bodies]
        _check_equal(real, lookups, bare, plain)
        polls = [
            post(QUERY, body, Authorization=f"Bearer {key}", If_None_Match=request_once(real, lookup).headers["etag"])
            for body, lookup in zip(bodies, lookups, strict=True)
        ]
        work = {
            "bare_django": lambda _: request_all(bare, plain, requests, 200, CONNECTIONS),
            "lookup": lambda _: request_all(real, lookups, requests, 200, CONNECTIONS),
            "poll_304": lambda _: request_all(real, polls, requests, 304, CONNECTIONS),
        }
        references = ["bare_django"]
        with pgbench(conn, environ, bodies) as transactions:
            if transactions is None:
                print("pgbench is not installed, so there is no figure of the database alone", file=sys.stderr)
            else:
                work["pgbench"] = lambda _: transactions(requests)
                references.append("pgbench")
            yield from side_by_side(work, "requests/s", references)
        yield _server_time(real, "lookup_server_ms", lookups, 200)
        yield _server_time(real, "poll_304_server_ms", polls, 304)


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


@contextmanager
def served(application: str, environ: Mapping[str, str]) -> Iterator[int]:
    """Serve a WSGI application with granian; give the port."""
    port = free_port()
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "2", "--blocking-threads", "32", application]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=dict(environ),
            stdout=log,
            stderr=log,
        )
        try:
            _await_answer(port, process)
            yield port
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4000:])
            raise
        finally:
            process.terminate()
            process.wait()


@contextmanager
def pgbench(
    conn: psycopg.Connection, environ: Mapping[str, str], bodies: list[bytes]
) -> Iterator[Callable[[int], int] | None]:
    """Give a function that runs the statement `count` times with pgbench and returns that count; None: no pgbench."""
    program = _pgbench_path()
    if program is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--no-vacuum", "--protocol=prepared", f"--client={CONNECTIONS}", "--jobs=1"]
        for number, body in enumerate(bodies):
            keys = pa.array([key[0] for key in json.loads(body)["keys"]]).to_pylist()
            script = Path(folder) / f"{number}.sql"
            script.write_text(_script(number))
            command += [f"--file={script}", f"--define=keys{number}={{{','.join(keys)}}}"]
        login = _environ_for_libpq(environ["DATABASE_URL"])

        def transactions(count: int) -> int:
            each = count // CONNECTIONS
            subprocess.run(
                [*command, f"--transactions={each}"], check=True, capture_output=True, env=dict(environ) | login
            )
            return each * CONNECTIONS

        yield transactions


def _script(number: int) -> str:
    statement = StateReader(None, SALES).ask([("shop",)]).statement.decode()  # type: ignore[arg-type]
    keys, _, rest = statement.partition("%s")
    return f"{keys}:keys{number}{rest.replace('%s', repr(SALES.name))};\n".replace("%%", "%")


def _pgbench_path() -> str | None:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    return shutil.which("pgbench") or (str(installed[-1]) if installed else None)


def _environ_for_libpq(url: str) -> dict[str, str]:
    """Return libpq's variables. Not as arguments, because all users of the machine can read those."""
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    return {names[part]: str(value) for part, value in conninfo_to_dict(url).items() if part in names and value}


def _environ(conn: psycopg.Connection) -> dict[str, str]:
    url = database_url(conn)
    return os.environ | {"DATABASE_URL": url, "SECRET_KEY": "benchmark-only", "LOG_FORMAT": "json", "DEBUG": "0"}


def _migrate_and_make_key(environ: Mapping[str, str]) -> str:
    manage = [sys.executable, "manage.py"]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], cwd=REPOSITORY, env=dict(environ), check=True)
    # A rate limit that is checked and never reached.
    key = subprocess.run(
        [*manage, "create_api_key", "benchmark", "--rate", "6000000"],
        cwd=REPOSITORY, env=dict(environ), check=True, capture_output=True, text=True,
    )  # fmt: skip
    return key.stdout.strip()


def _body(seed: int) -> bytes:
    chance = random.Random(seed)
    shops = chance.sample(batch(0).column("shop").to_pylist(), KEYS_PER_LOOKUP)
    return json.dumps({"keys": [[shop] for shop in shops]}).encode()


def _check_equal(real: int, lookups: list[bytes], bare: int, plain: list[bytes]) -> None:
    for ours, theirs in zip(lookups, plain, strict=True):
        one, other = request_once(real, ours), request_once(bare, theirs)
        if (one.status, other.status) != (200, 200) or json.loads(one.body) != json.loads(other.body):
            raise RuntimeError(f"the two responses differ: {one.body[:300]!r} and {other.body[:300]!r}")
        if "ratelimit-remaining" not in one.headers or "x-request-id" not in one.headers:
            raise RuntimeError("the lookup ran without its rate limit or request id")


def _server_time(port: int, name: str, requests: list[bytes], status: int) -> Case:
    """Return the time of a request within the process; one client, so that no request waits for the interpreter."""
    milliseconds = []
    for _ in range(ROUNDS + 1):
        before = _measured(port)
        request_all(port, requests, POLLS_ALONE, status, connections=1)
        after = _measured(port)
        milliseconds.append(1000 * (after["sum"] - before["sum"]) / (after["count"] - before["count"]))
    (case,) = compared({name: milliseconds[1:]}, "ms", [])
    return case


def _measured(port: int) -> dict[str, float]:
    scrape = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    return {part: float(value) for part, value in SERVER_SECONDS.findall(request_once(port, scrape).body.decode())}


def _await_answer(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SERVED_WITHIN_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            request_once(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            return
        except ConnectionError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")
