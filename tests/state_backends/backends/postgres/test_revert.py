"""What a revert costs: the pages that the batch has written, however large the table is."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.state_backends.feed import arrow
from tidegauge.state_backends import Count, PostgresBackingMap, StateSpec
from tidegauge.state_backends.maintenance import vacuum
from tidegauge.state_backends.spec.table import StateTable

VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})
PAGES, WRITTEN = 60_000, range(0, 60_000, 2_000)


@pytest.fixture(params=[1, 3], ids=["whole", "partitioned"])
def filled(request, conn, fresh):
    """A state with rows on about a thousand pages, of which the open batch 3 has written 30 rows."""
    spec = fresh(replace(VIEWS, partitions=request.param))
    backing = PostgresBackingMap(conn, spec, create=True)
    merge(conn, backing, 1, range(PAGES))
    vacuum(conn, StateTable(spec).name)
    merge(conn, backing, 2, range(0, PAGES, 3))
    merge(conn, backing, 3, WRITTEN)
    return backing


def merge(conn, backing, txid, pages):
    with conn.transaction():
        backing.merge(arrow([{"page": f"{page:06}", "n": 1} for page in pages]), txid, datetime.now(UTC))


def pages_read(conn, backing):
    conn.execute("SELECT pg_stat_force_next_flush()")
    pattern = f"{backing.spec.name}%"
    rows = conn.execute(
        "SELECT sum(heap_blks_read + heap_blks_hit), max(pg_relation_size(relid)) / 8192 FROM pg_statio_user_tables "
        "WHERE schemaname = 'tidegauge_state' AND relname LIKE %s",
        [pattern],
    )
    return rows.fetchone()


def test_a_revert_reads_the_pages_that_the_batch_has_written(conn, filled):
    before, pages = pages_read(conn, filled)

    assert filled.revert(3) == len(WRITTEN)

    read = pages_read(conn, filled)[0] - before
    # Both statements of a revert, and each row's update.
    assert read <= 5 * len(WRITTEN)
    assert pages > 300


def test_rows_that_moved_to_another_page_since_the_vacuum_are_reverted_as_well(conn, filled):
    new = range(PAGES, PAGES + 500)
    merge(conn, filled, 3, [*range(0, PAGES, 50), *new])

    reverted = filled.revert(3)

    assert reverted == PAGES // 50 + len(new)
    assert {row.txid for _, row in filled.scan()} == {1, 2}
    assert sum(row.value["n"] for _, row in filled.scan()) == PAGES + PAGES // 3
