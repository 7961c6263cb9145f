"""A page by a measure reads its whole range, so it is refused where that is too large."""

import pytest

from tidegauge.state_backends import Count, StateSpec, state_reader
from tidegauge.state_backends.backends.postgres import sorted_ranges
from tidegauge.state_backends.errors import RangeTooLargeError
from tidegauge.state_backends.reader.filters import Filter

KEY = {"origin": "text", "number": "bigint"}
PLAIN = StateSpec("plain_sorted", key=KEY, measures={"n": Count()})
LOGGED = StateSpec("logged_sorted", key=KEY, measures={"n": Count()}, changelog=True)
PARTED = StateSpec("parted_sorted", key=KEY, measures={"n": Count()}, partitions=3)
ROWS = [
    {"origin": origin, "number": number, "n": number}
    for origin, most in (("EWR", 40), ("JFK", 400))
    for number in range(most)
]


@pytest.fixture(params=[PLAIN, LOGGED, PARTED], ids=lambda spec: spec.name)
def reader(request, conn, fresh, new_feed):
    spec = fresh(request.param)
    new_feed(spec).run(ROWS)
    return state_reader(conn, spec)


def analyze(conn, reader):
    conn.execute(f"ANALYZE tidegauge_state.{reader.spec.name}")
    if reader.spec.changelog:
        conn.execute(f"ANALYZE tidegauge_changelog.{reader.spec.name}")


def top(reader, **asked) -> list[int]:
    return [entry["value"]["n"] for entry in reader.page(order_by="n", descending=True, limit=2, **asked).parsed()]


@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("asked", [{}, {"prefix": ["JFK"]}, {"start": ["F"], "where": ["n>398"]}])
def test_a_range_that_is_too_large_is_refused_by_its_state_and_the_limit(reader, conn, asked, analyzed):
    if analyzed:
        analyze(conn, reader)

    with pytest.raises(RangeTooLargeError, match=f"{reader.spec.name!r}: .* over 399 rows; give a prefix"):
        top(reader, most_sorted=399, **conditions(asked))


@pytest.mark.parametrize("at_txid", [None, 1])
def test_a_range_within_the_limit_is_sorted(reader, at_txid):
    assert top(reader, most_sorted=440, at_txid=at_txid) == [399, 398]
    assert top(reader, most_sorted=40, prefix=["EWR"], at_txid=at_txid) == [39, 38]


def test_a_table_that_is_far_smaller_is_not_counted(reader, conn, monkeypatch):
    analyze(conn, reader)
    monkeypatch.setattr(sorted_ranges, "range_sql", None)

    assert top(reader, most_sorted=4 * 440) == [399, 398]


def test_an_estimate_that_is_too_high_is_corrected_by_counting(reader, conn):
    analyze(conn, reader)
    table = f"tidegauge_state.{reader.spec.name}"
    conn.execute(f"DELETE FROM {table} WHERE origin = 'JFK'")

    assert top(reader, most_sorted=40) == [39, 38]


def test_conditions_on_the_first_key_columns_narrow_the_range(reader):
    assert top(reader, most_sorted=40, **conditions({"where": ["origin=EWR"]})) == [39, 38]


def test_pages_in_key_order_are_not_limited(reader):
    assert len(reader.page(limit=441, most_sorted=1).parsed()) == 440


def conditions(asked: dict) -> dict:
    return asked | {"where": [Filter.parse(text) for text in asked.get("where", [])]}
