"""Calls of many keys take little memory beside the caller's own lists; a million are in `python -m benchmarks bulk`."""

import tracemalloc

import pytest

from tidegauge.state_backends import PostgresBackingMap, StateSpec, Versioned
from tidegauge.state_backends.backends.postgres import tables
from tidegauge.state_backends.spec.table import StateTable

KEYS = [(f"page {number:06}",) for number in range(30_000)]
ROWS = [Versioned(number, 1) for number in range(30_000)]


@pytest.fixture
def pages(conn, fresh):
    spec = fresh(StateSpec("pages", key={"page": "text"}, value="jsonb"))
    tables.create(conn, StateTable(spec))
    return PostgresBackingMap(conn, spec)


@pytest.fixture
def peak():
    """Megabytes of Python objects at the highest, since the last call."""
    tracemalloc.start()

    def peak() -> float:
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        return highest / 1e6

    yield peak
    tracemalloc.stop()


def test_postgres_takes_a_chunk_at_a_time(pages, peak):
    pages.multi_put(KEYS, ROWS)
    put = peak()
    found = pages.multi_get(KEYS)
    held, highest = tracemalloc.get_traced_memory()[0] / 1e6, peak()

    assert found == ROWS
    # The index of keys that finds duplicates is 3 MB of it; all rows encoded at once would be 30 more.
    assert put < 12
    assert highest - held < 6
