"""merge: what exactly-once costs. The opaque merge beside a plain upsert of the same rows, as written by hand."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count

import psycopg
import pyarrow as pa

from benchmarks.cases import ROUNDS, Case, side_by_side
from benchmarks.rows import KEYS, SALES, batch
from benchmarks.servers import database
from state_backends import PostgresBackingMap
from state_backends.backing.postgres import csv_rows
from state_backends.schema import tables
from state_backends.table import StateTable


def run() -> Iterable[Case]:
    with database() as conn:
        tables.create(conn, StateTable(SALES))
        conn.execute(
            'CREATE TABLE plain (shop text COLLATE "C" PRIMARY KEY, n bigint, total double precision) '
            "WITH (fillfactor = 50)"
        )
        txids = count(1)
        for seed in range(ROUNDS + 1):  # so that all keys are there
            merge(conn, batch(seed), next(txids))
            upsert(conn, batch(seed))
        yield from side_by_side(
            {
                "plain_upsert": lambda number: upsert(conn, batch(number)),
                "opaque_merge": lambda number: merge(conn, batch(number), next(txids)),
            },
            "keys/s",
            reference="plain_upsert",
        )


def merge(conn: psycopg.Connection, rows: pa.RecordBatch, txid: int) -> int:
    with conn.transaction():
        return PostgresBackingMap(conn, SALES).merge([rows], txid, datetime.now(UTC))


def upsert(conn: psycopg.Connection, rows: pa.RecordBatch) -> int:
    """The same way in, so that only the statement differs."""
    with conn.transaction(), conn.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS SELECT * FROM plain WITH NO DATA")
        with cursor.copy("COPY incoming FROM STDIN (FORMAT csv)") as copy:
            copy.write(csv_rows(rows))
        cursor.execute(
            "INSERT INTO plain AS t SELECT * FROM incoming ORDER BY shop ON CONFLICT (shop) DO UPDATE "
            "SET n = t.n + excluded.n, total = t.total + excluded.total"
        )
        return KEYS
