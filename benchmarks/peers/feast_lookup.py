"""feast: 1 to 500 keys over HTTP, compared with Feast's feature server: its default path, and its stored vectors.

All have the same 100,000 keys with a count and a sum, and get the same lookups from the same client. Their values are
compared first. `feast serve` runs with two workers, like ours, a pool of connections, and no access log. `feast` is its
default path over the same PostgreSQL; `vectors` and `vectors_redis` read one stored vector per key from PostgreSQL and
from Redis (`precompute_online`). Rates are of 100 keys with four clients, times of one client.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import redis
from psycopg.conninfo import conninfo_to_dict

from benchmarks.cases import ROUNDS, Case, median_case, percentile, side_by_side
from benchmarks.http_client import durations, post, request_all, request_once
from benchmarks.peers.environments import FEAST_REQUIREMENTS, HERE, feast_program, pinned
from benchmarks.rows import KEYS, batch
from benchmarks.servers import database, database_url, redis_client
from benchmarks.web import (
    BODIES,
    CONNECTIONS,
    LOOKUP,
    WORKERS,
    fill,
    lookup_body,
    migrate_and_make_key,
    served,
    served_by_granian,
    shops_asked,
    web_environ,
)  # fmt: skip
from tidegauge.pipelines.embedded.data_dir import LOOPBACK, free_port

UNEQUAL = {
    "feast": (
        "It has no authentication, rate limit or log line per request. Its table has a row per value, as protobuf, and "
        "its answer has the time of each value. It runs on gunicorn and uvicorn, which it brings."
    ),
    "vectors*": (
        "As `feast`, but a row per key, in PostgreSQL or in Redis. Feast fills such vectors for Redis only, so the "
        "benchmark writes them; a key without a vector fails the whole request, so only keys that exist are asked."
    ),
}
SEEDS = "the keys of body n: n, from 0; the rows of the state: 0"

VERSIONS = {"Feast": pinned(r"^feast==(.+)$", FEAST_REQUIREMENTS)}

REQUESTS = 500  # per case and round
ROWS = (1, 10, 50, 100, 500)
FEATURES = {"features": ["sales:n", "sales:total"]}
VECTORS = {"feature_service": "sales_vector"}

Asked = tuple[int, list[bytes]]  # a port, and the requests that are sent to it in turn


def run(requests: int = REQUESTS, rounds: int = ROUNDS) -> Iterator[Case]:
    with database() as conn, redis_client() as client, ExitStack() as stack:
        fill(conn)
        environ = web_environ(conn)
        key = migrate_and_make_key(environ)
        ours = stack.enter_context(served_by_granian(environ))
        in_postgres = stack.enter_context(_served_by_feast(_postgres(conn)))
        in_redis = stack.enter_context(_served_by_feast(_redis(client)))
        conn.execute("VACUUM ANALYZE")
        asked: dict[int, dict[str, Asked]] = {}
        for count in ROWS:
            lookups = [post(LOOKUP, lookup_body(seed, count), Authorization=f"Bearer {key}") for seed in range(BODIES)]
            asked[count] = {
                "lookup": (ours, lookups),
                "feast": (in_postgres, _feast_requests(FEATURES, count)),
                "vectors": (in_postgres, _feast_requests(VECTORS, count)),
                "vectors_redis": (in_redis, _feast_requests(VECTORS, count)),
            }
            _check_equal(asked[count])
        peers = ["feast", "vectors", "vectors_redis"]
        work = {name: partial(_rate, *each, requests) for name, each in asked[100].items()}
        yield from side_by_side(work, "requests/s", references=peers, rounds=rounds)
        for count, each in asked.items():
            yield from _times(count, each, requests // 2, rounds, peers)


def _rate(port: int, sent: Sequence[bytes], requests: int, number: int) -> int:
    return request_all(port, sent, requests, 200, CONNECTIONS)


def _times(count: int, asked: Mapping[str, Asked], requests: int, rounds: int, peers: Sequence[str]) -> Iterator[Case]:
    """Yield p50 and p99 of the answers for `count` keys, one request at a time."""
    measured: dict[str, list[list[float]]] = {name: [] for name in asked}
    for _ in range(rounds):
        for name, (port, sent) in asked.items():
            measured[name].append(durations(port, sent, requests, 200, 1))
    for percent in (50, 99):
        in_ms = {name: [1_000 * percentile(each, percent) for each in times] for name, times in measured.items()}
        for name, figures in in_ms.items():
            references = {peer: in_ms[peer] for peer in peers} if name == "lookup" else {}
            yield median_case(f"{name}_{count}_rows_p{percent}", figures, "ms", references)


@contextmanager
def _served_by_feast(online_store: Mapping[str, object]) -> Iterator[int]:
    """Fill a store and serve it; yield the port. The store is emptied afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
        sales = pa.Table.from_batches([batch(0)])
        now = pa.array([datetime.now(UTC)] * KEYS, pa.timestamp("us", "UTC"))
        pq.write_table(sales.append_column("event_time", now), f"{folder}/sales.parquet")
        configuration = {
            "project": "bench",
            "provider": "local",
            "registry": "registry.db",
            "online_store": dict(online_store),
            "offline_store": {"type": "file"},
            "entity_key_serialization_version": 3,
        }
        Path(folder, "feature_store.yaml").write_text(json.dumps(configuration))  # JSON is YAML
        _store(folder, f"{folder}/sales.parquet")
        port = free_port()
        command = [feast_program("feast"), "--chdir", folder, "serve", "--host", LOOPBACK, "--port", str(port)]
        # No limit of requests: a worker by default ends after a thousand, and closes its connections in a round.
        command += ["--workers", str(WORKERS), "--no-access-log", "--max-requests", "0"]
        try:
            with served(command, port, _environ(), Path(folder)):
                yield port
        finally:
            _store(folder)


def _store(*arguments: str) -> None:
    """Run store.py. Raises CalledProcessError; what it wrote to standard error is on ours."""
    command = [feast_program("python"), str(HERE / "feast" / "store.py"), *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=_environ())


def _postgres(conn: psycopg.Connection) -> dict[str, object]:
    login = conninfo_to_dict(database_url(conn))
    server = {"host": login["host"], "port": int(login["port"]), "database": login["dbname"]}
    server |= {"user": login["user"], "password": login["password"], "sslmode": "disable"}
    return {"type": "postgres", "conn_type": "pool", "db_schema": "public", **server}


def _redis(client: redis.Redis) -> dict[str, object]:
    login = client.connection_pool.connection_kwargs
    parts = [f"{login['host']}:{login['port']}", f"db={login.get('db', 0)}"]
    if login.get("password"):
        parts.append(f"password={login['password']}")
    return {"type": "redis", "connection_string": ",".join(parts)}


def _environ() -> dict[str, str]:
    # Without our PYTHON variables, so that it loads the packages of its own environment.
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _feast_requests(features: Mapping[str, object], count: int) -> list[bytes]:
    bodies = [json.dumps({**features, "entities": {"shop": shops_asked(seed, count)}}) for seed in range(BODIES)]
    return [post("/get-online-features", body.encode()) for body in bodies]


def _check_equal(asked: Mapping[str, Asked]) -> None:
    """Raises RuntimeError if one of Feast's answers has other values than ours."""
    port, lookups = asked["lookup"]
    for name, (theirs, requests) in asked.items():
        for lookup, request in zip(lookups, requests, strict=True):
            found = [each["value"] for each in json.loads(request_once(port, lookup).body)["results"]]
            if name != "lookup" and found != _of_feast(request_once(theirs, request).body):
                raise RuntimeError(f"{name} answers other values than lookups do: {found[:2]} is right")


def _of_feast(body: bytes) -> list[dict[str, object]]:
    answer = json.loads(body)
    columns = dict(zip(answer["metadata"]["feature_names"], answer["results"], strict=True))
    pairs = zip(columns["n"]["values"], columns["total"]["values"], strict=True)
    return [{"n": n, "total": total} for n, total in pairs]
