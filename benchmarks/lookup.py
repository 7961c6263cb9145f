"""lookup: 100 keys over HTTP, compared with a bare Django view that runs the same statement, and with pgbench.

The lookup includes an API key, its rate limit in Redis, the log, the metrics and all middleware. Both run on granian,
ours as it is deployed and the bare view as WSGI without a front, and are measured in turn. A poll is a lookup whose
client already has the result, so the answer is a 304.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import psycopg

from benchmarks.cases import ROUNDS, Case, Work, median_case, side_by_side
from benchmarks.http_client import get, post, request_all, request_once
from benchmarks.pgbench import Pgbench, pgbench_program
from benchmarks.rows import SALES
from benchmarks.servers import database, redis_client
from benchmarks.web import (
    BODIES,
    CONNECTIONS,
    LOOKUP,
    fill,
    lookup_body,
    migrate_and_make_key,
    served_by_granian,
    shops_asked,
    web_environ,
)  # fmt: skip
from tidegauge.state_backends import StateReader

UNEQUAL = {
    "bare_django": (
        "A route and a view with the same statement, and nothing else: no middleware, authentication, rate limit, "
        "validation, log line or metrics. It sends PostgreSQL's result unchanged."
    ),
    "pgbench": "Only the database: the same statement, prepared, without HTTP, from a client written in C.",
}
SEEDS = "the keys of body n: n, from 0; the rows of the state: 0"

REQUESTS = 1_500  # per case and round, about two seconds
POLLS_ALONE = 500
WSGI = ["--interface", "wsgi", "--blocking-threads", "32"]
# The sum and the count of the durations that the process has measured for this route.
SERVER_SECONDS = re.compile(
    r'^tidegauge_http_request_seconds_(sum|count)\{route="lookup:lookup"\} (\S+)$', re.MULTILINE
)


def run(requests: int = REQUESTS, rounds: int = ROUNDS) -> Iterable[Case]:
    with database() as conn, redis_client(), ExitStack() as servers:
        fill(conn)
        environ = web_environ(conn)
        key = migrate_and_make_key(environ)
        real = servers.enter_context(served_by_granian(environ))
        bare = servers.enter_context(served_by_granian(environ, [*WSGI, "benchmarks.bare_django:application"]))
        bodies = [lookup_body(seed) for seed in range(BODIES)]
        lookups = [post(LOOKUP, body, Authorization=f"Bearer {key}") for body in bodies]
        plain = [post("/query", body) for body in bodies]
        _check_equal(real, lookups, bare, plain)
        polls = [
            post(LOOKUP, body, Authorization=f"Bearer {key}", If_None_Match=request_once(real, lookup).headers["etag"])
            for body, lookup in zip(bodies, lookups, strict=True)
        ]
        work: dict[str, Work] = {
            "bare_django": lambda _: request_all(bare, plain, requests, 200, CONNECTIONS),
            "lookup": lambda _: request_all(real, lookups, requests, 200, CONNECTIONS),
            "poll_304": lambda _: request_all(real, polls, requests, 304, CONNECTIONS),
        }
        if program := pgbench_program():
            work["pgbench"] = _statement(program, conn, requests)
        yield from side_by_side(work, "requests/s", [name for name in UNEQUAL if name in work], rounds)
        yield from _server_times(real, {"lookup": (lookups, 200), "poll_304": (polls, 304)}, rounds)


def _statement(program: str, conn: psycopg.Connection, requests: int) -> Work:
    """Return the work for pgbench: the statement with the keys of each body."""
    arrays = {f"keys{seed}": f"{{{','.join(shops_asked(seed))}}}" for seed in range(BODIES)}
    alone, scripts = Pgbench(program, conn, CONNECTIONS, arrays), [_script(name) for name in arrays]
    # More requests, because each connection first prepares each script.
    return lambda _: alone.run(scripts, 4 * requests)


def _script(keys: str) -> str:
    statement = StateReader(None, SALES).ask([("shop",)]).statement.decode()  # type: ignore[arg-type]
    before, _, rest = statement.partition("%s")
    return f"{before}:{keys}{rest.replace('%s', repr(SALES.name))};\n".replace("%%", "%")


def _check_equal(real: int, lookups: Sequence[bytes], bare: int, plain: Sequence[bytes]) -> None:
    for ours, theirs in zip(lookups, plain, strict=True):
        one, other = request_once(real, ours), request_once(bare, theirs)
        if (one.status, other.status) != (200, 200) or json.loads(one.body) != json.loads(other.body):
            raise RuntimeError(f"the two responses differ: {one.body[:300]!r} and {other.body[:300]!r}")
        if "ratelimit" not in one.headers or "x-request-id" not in one.headers:
            raise RuntimeError("the lookup ran without its rate limit or request id")


def _server_times(port: int, requests: Mapping[str, tuple[list[bytes], int]], rounds: int) -> Iterator[Case]:
    """Yield the time of a request within the process, with one client, so that no request waits for the interpreter.

    requests: by name, the requests and the status of their responses.
    """
    times: dict[str, list[float]] = {name: [] for name in requests}
    for _ in range(rounds + 1):
        for name, (bodies, status) in requests.items():
            times[name].append(_server_time(port, bodies, status))
    for name, milliseconds in times.items():
        yield median_case(f"{name}_server_ms", milliseconds[1:], "ms")


def _server_time(port: int, requests: list[bytes], status: int) -> float:
    before = _measured(port)
    request_all(port, requests, POLLS_ALONE, status, connections=1)
    after = _measured(port)
    return 1000 * (after["sum"] - before["sum"]) / (after["count"] - before["count"])


def _measured(port: int) -> dict[str, float]:
    metrics = request_once(port, get("/metrics")).body.decode()
    return {part: float(value) for part, value in SERVER_SECONDS.findall(metrics)}
