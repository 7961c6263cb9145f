"""merge: the cost of exactly-once. The opaque merge is compared with a plain upsert of the same rows, which counts
replays twice.

The plain upsert runs on a table with default settings, and on one with our fill factor. A batch has 100,000 of 300,000
keys, all of which exist, in key order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import psycopg
import pyarrow as pa

from benchmarks.cases import ROUNDS, Case, Timed, Work, side_by_side
from benchmarks.pgbench import Pgbench, pgbench_program
from benchmarks.rows import KEYS, SALES, batch
from benchmarks.servers import database
from tidegauge.state_backends import PostgresBackingMap, StateSpec
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.backends.postgres.incoming import csv_rows
from tidegauge.state_backends.backends.postgres.merge import BY_KEY, merge_sql
from tidegauge.state_backends.spec.table import StateTable

UNEQUAL = {
    "plain_upsert": (
        "It keeps one version of each row, without the batch's id and time, and so writes fewer columns. Its pages are "
        "full, so most updates also write the index. It creates its temporary table in each batch, while the merge "
        "keeps one for the session."
    ),
    "plain_upsert_tuned": "The same, but its pages have as much room for new versions as those of the state.",
    "pgbench": (
        "Only the database: the merge's statement over the same rows, which are already in a table, so without COPY. "
        "Each round has a new connection."
    ),
}
SEEDS = "the keys and counts of round n: n, from 0, the warm-up"

ALONE = replace(SALES, name="bench_alone")  # the state that pgbench merges into
FILL_FACTORS = {"plain_upsert": 100, "plain_upsert_tuned": tables.FILL_FACTOR}


def run(rounds: int = ROUNDS) -> Iterable[Case]:
    with database() as conn:
        for spec in (SALES, ALONE):
            tables.create(conn, StateTable(spec))
        for table, fill_factor in FILL_FACTORS.items():
            conn.execute(
                f'CREATE TABLE {table} (shop text COLLATE "C" PRIMARY KEY, n bigint, total double precision) '
                f"WITH (fillfactor = {fill_factor})"
            )
        txids = count(1)
        for seed in range(rounds + 1):  # so that all keys exist
            for spec in (SALES, ALONE):
                merge(conn, spec, batch(seed), next(txids))
            for table in FILL_FACTORS:
                upsert(conn, table, batch(seed))
        work: dict[str, Work] = {
            "plain_upsert": lambda number: upsert(conn, "plain_upsert", batch(number)),
            "plain_upsert_tuned": lambda number: upsert(conn, "plain_upsert_tuned", batch(number)),
            "opaque_merge": lambda number: merge(conn, SALES, batch(number), next(txids)),
        }
        if program := pgbench_program():
            work["pgbench"] = _statement(program, conn, txids, rounds)
        yield from side_by_side(work, "keys/s", [name for name in UNEQUAL if name in work], rounds)


def merge(conn: psycopg.Connection, spec: StateSpec, rows: pa.RecordBatch, txid: int) -> int:
    with conn.transaction():
        return PostgresBackingMap(conn, spec).merge([rows], txid, datetime.now(UTC))


def upsert(conn: psycopg.Connection, table: str, rows: pa.RecordBatch) -> int:
    """Upsert rows, with the same COPY as the merge, so that only the statement differs."""
    with conn.transaction(), conn.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT * FROM {table} WITH NO DATA")
        _copy(cursor, "incoming", rows)
        cursor.execute(
            f"INSERT INTO {table} AS t SELECT * FROM incoming ORDER BY shop ON CONFLICT (shop) DO UPDATE "
            "SET n = t.n + excluded.n, total = t.total + excluded.total"
        )
        return KEYS


def _statement(program: str, conn: psycopg.Connection, txids: Iterator[int], rounds: int) -> Work:
    """Return the work for pgbench: the merge's statement over the rows of a round, which have their own table."""
    for number in range(rounds + 1):
        conn.execute(f"CREATE UNLOGGED TABLE rows_{number} AS SELECT * FROM plain_upsert WITH NO DATA")
        with conn.cursor() as cursor:
            _copy(cursor, f"rows_{number}", batch(number))
    table = StateTable(ALONE)
    statement, incoming = merge_sql(table, in_order=True).as_string(conn), table.incoming.as_string(conn)
    values = {"batch_time": "now()", "ttl": "NULL::interval", "txid": ":txid::bigint", "newest": ":txid::bigint"}
    for name, value in values.items():
        statement = statement.replace(f"%({name})s", value)

    def merge_alone(number: int) -> Timed:
        alone = Pgbench(program, conn, clients=1, variables={"txid": str(next(txids))})
        merged = statement.replace(incoming, f"rows_{number}")
        done = alone.run([f"BEGIN;\n{BY_KEY};\n{merged};\nCOMMIT;\n"], count=1)
        return Timed(KEYS, done.seconds)

    return merge_alone


def _copy(cursor: psycopg.Cursor, table: str, rows: pa.RecordBatch) -> None:
    with cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv)") as copy:
        copy.write(csv_rows(rows))
