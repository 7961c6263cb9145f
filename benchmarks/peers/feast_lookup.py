"""feast: 100 keys over HTTP, compared with Feast's feature server over the same PostgreSQL.

Both have the same 100,000 keys with a count and a sum, and get the same lookups from the same client. The values of
both are compared first. `feast serve` runs with two workers, like ours, a pool of connections, and no access log.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.conninfo import conninfo_to_dict

from benchmarks.cases import ROUNDS, Case, side_by_side
from benchmarks.http_client import post, request_all, request_once
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
    )
}
SEEDS = "the keys of body n: n, from 0; the rows of the state: 0"

VERSIONS = {"Feast": pinned(r"^feast==(.+)$", FEAST_REQUIREMENTS)}

REQUESTS = 500  # per case and round
FEATURES = ["sales:n", "sales:total"]


def run(requests: int = REQUESTS, rounds: int = ROUNDS) -> Iterator[Case]:
    program = feast_program("feast")
    with database() as conn, redis_client(), tempfile.TemporaryDirectory(prefix="tidegauge-bench-") as folder:
        fill(conn)
        _fill_feast(conn, Path(folder))
        environ = web_environ(conn)
        key = migrate_and_make_key(environ)
        with served_by_granian(environ) as ours, _served_by_feast(program, folder) as theirs:
            lookups = [post(LOOKUP, lookup_body(seed), Authorization=f"Bearer {key}") for seed in range(BODIES)]
            features = [post("/get-online-features", _feast_body(seed)) for seed in range(BODIES)]
            _check_equal(ours, lookups, theirs, features)
            yield from side_by_side(
                {
                    "feast": lambda _: request_all(theirs, features, requests, 200, CONNECTIONS),
                    "lookup": lambda _: request_all(ours, lookups, requests, 200, CONNECTIONS),
                },
                "requests/s",
                references=["feast"],
                rounds=rounds,
            )


def _fill_feast(conn: psycopg.Connection, folder: Path) -> None:
    sales = pa.Table.from_batches([batch(0)])
    now = pa.array([datetime.now(UTC)] * KEYS, pa.timestamp("us", "UTC"))
    pq.write_table(sales.append_column("event_time", now), folder / "sales.parquet")
    (folder / "feature_store.yaml").write_text(json.dumps(_configuration(conn)))  # JSON is YAML
    store = [feast_program("python"), str(HERE / "feast" / "store.py"), str(folder), str(folder / "sales.parquet")]
    subprocess.run(store, check=True, capture_output=True, env=_environ())
    conn.execute("VACUUM ANALYZE")


def _configuration(conn: psycopg.Connection) -> dict[str, object]:
    login = conninfo_to_dict(database_url(conn))
    server = {"host": login["host"], "port": int(login["port"]), "database": login["dbname"]}
    server |= {"user": login["user"], "password": login["password"], "sslmode": "disable"}
    return {
        "project": "bench",
        "provider": "local",
        "registry": "registry.db",
        "online_store": {"type": "postgres", "conn_type": "pool", "db_schema": "public", **server},
        "offline_store": {"type": "file"},
        "entity_key_serialization_version": 3,
    }


@contextmanager
def _served_by_feast(program: str, folder: str) -> Iterator[int]:
    port = free_port()
    command = [program, "--chdir", folder, "serve", "--host", LOOPBACK, "--port", str(port)]
    # No limit of requests, because a worker by default ends after a thousand, and closes its connections in a round.
    command += ["--workers", str(WORKERS), "--no-access-log", "--max-requests", "0"]
    with served(command, port, _environ(), Path(folder)):
        yield port


def _environ() -> dict[str, str]:
    # Without our PYTHON variables, so that it loads the packages of its own environment.
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _feast_body(seed: int) -> bytes:
    return json.dumps({"features": FEATURES, "entities": {"shop": shops_asked(seed)}}).encode()


def _check_equal(ours: int, lookups: Sequence[bytes], theirs: int, features: Sequence[bytes]) -> None:
    for lookup, request in zip(lookups, features, strict=True):
        found = [each["value"] for each in json.loads(request_once(ours, lookup).body)["results"]]
        answer = json.loads(request_once(theirs, request).body)
        columns = dict(zip(answer["metadata"]["feature_names"], answer["results"], strict=True))
        pairs = zip(columns["n"]["values"], columns["total"]["values"], strict=True)
        if found != [{"n": n, "total": total} for n, total in pairs]:
            raise RuntimeError(f"the two responses differ: {found[:2]} and {str(answer)[:300]}")
