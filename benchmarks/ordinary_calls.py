"""What the other client of the abuse benchmark may ask as often as it likes, and what these calls read."""

import json
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import datasketches
import psycopg
import pyarrow as pa

from benchmarks.http_client import get, post
from benchmarks.web import LOOKUP, lookup_body
from tidegauge.state_backends import Catalog, Count, DistinctCount, PostgresBackingMap, StateSpec

PAGES = StateSpec("bench_pages", key={"page": "text"}, measures={"n": Count(), "visitors": DistinctCount("visitor")})
VISITORS_OF_A_PAGE = 2_000
PAGES_COMBINED = 100
BATCHES, LETTERS = 5_000, 5_000


def fill(conn: psycopg.Connection) -> None:
    """Add a state of sketches, a past of batches and dead letters to the pipeline `bench`."""
    Catalog(conn).register_states("bench", [PAGES], {PAGES.name: "exactly once"})
    columns = {
        "page": _pages(),
        "n": [1] * PAGES_COMBINED,
        "visitors_sketch": [_sketch(n) for n in range(PAGES_COMBINED)],
    }
    with conn.transaction():
        PostgresBackingMap(conn, PAGES).merge([pa.RecordBatch.from_pydict(columns)], 1, datetime.now(UTC))
    conn.execute(
        "INSERT INTO tidegauge.batch "
        "(pipeline, txid, attempt, batch_id, fence, batch_time, started_at, committed_at, rows_in) "
        "SELECT 'bench', g, 1, g, 1, past, past, past + interval '1 second', 20 "
        "FROM generate_series(2, %(last)s) g, LATERAL (SELECT now() - (%(last)s - g) * interval '10 s') AS b (past)",
        {"last": BATCHES},
    )
    # The first batch, which has the rows of all states, is the oldest one.
    conn.execute("UPDATE tidegauge.batch SET committed_at = committed_at - interval '1 day' WHERE txid = 1")
    conn.execute("UPDATE tidegauge.pipeline SET committed_txid = %s", [BATCHES])
    conn.execute(
        "INSERT INTO tidegauge.dead_letter (pipeline, txid, source, line_number, line, reason) "
        "SELECT 'bench', 1, 'file ' || g, 1, repeat('x', 200), 'field ' || g %% 40 || ': expected a number, got ' || g "
        "FROM generate_series(1, %s) g",
        [LETTERS],
    )
    conn.execute("VACUUM ANALYZE")


def _pages() -> list[str]:
    return [f"page-{number:04}" for number in range(PAGES_COMBINED)]


def _sketch(seed: int) -> bytes:
    chance, sketch = random.Random(seed), datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)
    for _ in range(VISITORS_OF_A_PAGE):
        sketch.update(str(chance.randrange(100_000)))
    return bytes(sketch.serialize_compact())


def _combine(key: str) -> bytes:
    body = {"keys": [[page] for page in _pages()], "combine": True}
    return post(f"/api/v1/states/{PAGES.name}/lookup", json.dumps(body).encode(), Authorization=f"Bearer {key}")


# By name, what makes the request with an API key.
CALLS: Mapping[str, Callable[[str], bytes]] = {
    "lookups_of_1000_keys": lambda key: post(LOOKUP, lookup_body(0, 1_000), Authorization=f"Bearer {key}"),
    "combines_of_100_sketches": _combine,
    "pages_of_1000_entries": lambda key: get("/api/v1/states/bench_visitors/entries?limit=1000", key),
    "series_of_a_pipeline": lambda key: get("/api/v1/pipelines/bench/series?last=86400&points=500", key),
    "groups_of_dead_letters": lambda key: get("/api/v1/pipelines/bench/dead-letters/groups", key),
}
