"""windows: trailing windows of the last hour, 24 hours and 7 days, folded from tiles at read time.

The state has 500 keys of 120 minutes, 70 hours and 4 days each, and a count and a sum. A read asks for three windows of
one key, or of 100 keys, through the library; the reference is a statement of a user's own for the same sums.
"""

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa

from benchmarks.cases import Case, side_by_side
from benchmarks.scaling import Ledger
from benchmarks.servers import database
from tidegauge.state_backends import Count, PostgresBackingMap, StateReader, StateSpec, Sum
from tidegauge.state_backends.backends.postgres.tiles import compact_tiles
from tidegauge.state_backends.ledger.batch import lock_fence

UNEQUAL = {
    "sql_of_*": (
        "PostgreSQL adds the rows, which it can for counts, sums and extremes only. Windows are folded by the "
        "measures' aggregators, checked against the tiles that are kept, and answered as JSON that says what each "
        "covers."
    )
}
SEEDS = "the keys of read n of a round: n"

SPEC = StateSpec(
    "bench_tiles",
    key={"page": "text", "start": "timestamptz"},
    measures={"n": Count(), "total": Sum("x", "double precision")},
    tiles={"minute": timedelta(hours=2), "hour": timedelta(days=3), "day": timedelta(days=400)},
)
PAGES = 500
TO = datetime(2026, 3, 2, 7, 0, tzinfo=UTC)
STARTS = [
    *(TO - timedelta(minutes=minutes) for minutes in range(1, 121)),
    *(TO - timedelta(hours=hours) for hours in range(3, 73)),
    *(TO.replace(hour=0) - timedelta(days=days) for days in range(4, 8)),
]
WINDOWS = [timedelta(hours=1), timedelta(hours=24), timedelta(days=7)]
READS = {1: 200, 100: 10}  # reads per round, by their keys
ROUNDS = 9

# Each start in a subquery, because the function would otherwise be called for each row.
STATEMENT = """
SELECT page,
    sum(n) FILTER (WHERE start >= (SELECT tidegauge.tile_start('bench_tiles', %(to)s - interval '1 hour'))),
    sum(total) FILTER (WHERE start >= (SELECT tidegauge.tile_start('bench_tiles', %(to)s - interval '1 hour'))),
    sum(n) FILTER (WHERE start >= (SELECT tidegauge.tile_start('bench_tiles', %(to)s - interval '24 hours'))),
    sum(total) FILTER (WHERE start >= (SELECT tidegauge.tile_start('bench_tiles', %(to)s - interval '24 hours'))),
    sum(n), sum(total)
FROM tidegauge_live.bench_tiles
WHERE page = ANY(%(pages)s) AND start < (SELECT tidegauge.tile_start('bench_tiles', %(to)s))
    AND start >= (SELECT tidegauge.tile_start('bench_tiles', %(to)s - interval '7 days'))
GROUP BY page
"""


def run(rounds: int = ROUNDS) -> Iterator[Case]:
    with database() as conn:
        _fill(conn)
        reader = StateReader(conn, SPEC)
        for keys, reads in READS.items():
            _check_equal(conn, reader, _pages(0, keys))

            def windows(_: int, keys: int = keys, reads: int = reads) -> int:
                for seed in range(reads):
                    reader.windows([(page,) for page in _pages(seed, keys)], WINDOWS, to=TO)
                return reads

            def sql(_: int, keys: int = keys, reads: int = reads) -> int:
                for seed in range(reads):
                    _sums(conn, _pages(seed, keys))
                return reads

            named = {f"sql_of_{keys}": sql, f"windows_of_{keys}": windows}
            yield from side_by_side(named, "reads/s", references=[f"sql_of_{keys}"], rounds=rounds)


def _fill(conn: psycopg.Connection) -> None:
    ledger = Ledger(conn, [SPEC])
    names = [_page(number) for number in range(PAGES)]
    # The second batch writes one row, because a compaction leaves alone what the committed batch may write again.
    for rows in (_rows(names, STARTS), _rows(names[:1], STARTS[:1])):
        batch = ledger.begin()
        with conn.transaction():
            lock_fence(conn, batch)
            PostgresBackingMap(conn, SPEC).merge([rows], batch.txid, batch.batch_time)
        ledger.commit()
    for _ in compact_tiles(conn, SPEC):
        pass
    conn.execute("ANALYZE tidegauge_state.bench_tiles")


def _rows(pages: Iterable[str], starts: list[datetime]) -> pa.RecordBatch:
    keys = [(page, start) for page in pages for start in sorted(starts)]
    return pa.RecordBatch.from_pydict(
        {
            "page": [page for page, _ in keys],
            "start": pa.array([start for _, start in keys], pa.timestamp("us", tz="UTC")),
            "n": [1] * len(keys),
            "total": [1.5] * len(keys),
        }
    )


def _check_equal(conn: psycopg.Connection, reader: StateReader, pages: list[str]) -> None:
    snapshot, _ = reader.windows([(page,) for page in pages], WINDOWS, to=TO)
    ours = {
        row["key"][0]: tuple(value[name] for value in row["values"] for name in ("n", "total"))
        for row in snapshot.parsed()
    }
    theirs = {page: tuple(map(float, sums)) for page, *sums in _sums(conn, pages)}
    if ours != theirs:
        raise RuntimeError(f"the two answers differ: {ours!r:.300} and {theirs!r:.300}")


def _sums(conn: psycopg.Connection, pages: list[str]) -> list[tuple[Any, ...]]:
    return conn.execute(STATEMENT, {"to": TO, "pages": pages}).fetchall()


def _pages(seed: int, keys: int) -> list[str]:
    return [_page(number) for number in random.Random(seed).sample(range(PAGES), keys)]


def _page(number: int) -> str:
    return f"/page/{number:04}"
