"""merge: the cost of exactly-once. The opaque merge compared with a plain upsert of the same rows, which counts
replays twice.

The plain upsert runs on a table with default settings, and on one with our fill factor.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count

import psycopg
import pyarrow as pa

from benchmarks.cases import ROUNDS, Case, side_by_side
from benchmarks.rows import KEYS, SALES, batch
from benchmarks.servers import database
from state_backends import PostgresBackingMap
from state_backends.backends.postgres import tables
from state_backends.backends.postgres.rows import csv_rows
from state_backends.table import StateTable

FILL_FACTORS = {"plain_upsert": 100, "plain_upsert_tuned": tables.FILL_FACTOR}


def run() -> Iterable[Case]:
    with database() as conn:
        tables.create(conn, StateTable(SALES))
        for table, fill_factor in FILL_FACTORS.items():
            conn.execute(
                f'CREATE TABLE {table} (shop text COLLATE "C" PRIMARY KEY, n bigint, total double precision) '
                f"WITH (fillfactor = {fill_factor})"
            )
        txids = count(1)
        for seed in range(ROUNDS + 1):  # so that all keys exist
            merge(conn, batch(seed), next(txids))
            for table in FILL_FACTORS:
                upsert(conn, table, batch(seed))
        yield from side_by_side(
            {
                "plain_upsert": lambda number: upsert(conn, "plain_upsert", batch(number)),
                "plain_upsert_tuned": lambda number: upsert(conn, "plain_upsert_tuned", batch(number)),
                "opaque_merge": lambda number: merge(conn, batch(number), next(txids)),
            },
            "keys/s",
            references=list(FILL_FACTORS),
        )


def merge(conn: psycopg.Connection, rows: pa.RecordBatch, txid: int) -> int:
    with conn.transaction():
        return PostgresBackingMap(conn, SALES).merge([rows], txid, datetime.now(UTC))


def upsert(conn: psycopg.Connection, table: str, rows: pa.RecordBatch) -> int:
    """Upsert rows, with the same COPY as the merge so that only the statement differs."""
    with conn.transaction(), conn.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT * FROM {table} WITH NO DATA")
        with cursor.copy("COPY incoming FROM STDIN (FORMAT csv)") as copy:
            copy.write(csv_rows(rows))
        cursor.execute(
            f"INSERT INTO {table} AS t SELECT * FROM incoming ORDER BY shop ON CONFLICT (shop) DO UPDATE "
            "SET n = t.n + excluded.n, total = t.total + excluded.total"
        )
        return KEYS
