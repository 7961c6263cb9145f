"""Entries folded by key columns, as their aggregators fold them, of a state in a table and of its twin in Redis."""

from datetime import date, timedelta

import datasketches as ds
import psycopg
import pytest

from tests.state_backends.reader.test_history import BOTH
from tidegauge.state_backends import Count, DistinctCount, Max, Mean, StateSpec
from tidegauge.state_backends.errors import FilterError, OutOfReachError, RangeTooLargeError, SpecError
from tidegauge.state_backends.reader.filters import Filter

FLIGHTS = StateSpec(
    "flights",
    key={"origin": "text", "carrier": "text", "day": "date"},
    measures={"n": Count(), "mean": Mean("delay"), "longest": Max("delay"), "planes": DistinctCount("tail")},
)
SOLD = StateSpec("sold", key={"page": "text", "day": "bigint"}, measures={"n": Count(), "mean": Mean("x")})


def sketch(*tails):
    made = ds.hll_sketch(12, ds.tgt_hll_type.HLL_8)
    for tail in tails:
        made.update(tail)
    return bytes(made.serialize_compact())


def flown(origin, carrier, n, delay, *tails, day="2026-11-23"):
    return {
        "origin": origin, "carrier": carrier, "day": day, "n": n, "mean_sum": n * delay, "mean_count": n,
        "longest": delay, "planes_sketch": sketch(*tails),
    }  # fmt: skip


def sold(page, day, n, x=1.0):
    return {"page": page, "day": day, "n": n, "mean_sum": n * x, "mean_count": n}


def groups(reader, by, **asked):
    return [(*each["key"], each["keys"], each["value"]["n"]) for each in reader.groups(by, **asked).parsed()]


@BOTH
def test_means_are_of_all_events_and_distinct_counts_are_unions(twins, place):
    feed = twins(FLIGHTS)
    feed.commit(
        flown("EWR", "AA", 1, 10.0, "N1", "N2"), flown("EWR", "UA", 3, 20.0, "N2"), flown("JFK", "AA", 5, 2.0, "N1")
    )

    found = feed.readers()[place].groups(["origin"]).parsed()

    assert found == [
        {"key": ["EWR"], "keys": 2, "value": {"n": 4, "mean": 17.5, "longest": 20, "planes": 2}},
        {"key": ["JFK"], "keys": 1, "value": {"n": 5, "mean": 2, "longest": 2, "planes": 1}},
    ]
    by_carrier = feed.readers()[place].groups(["day", "carrier"], measures=["planes"]).parsed()
    assert [(each["key"], each["value"]) for each in by_carrier] == [
        (["AA", "2026-11-23"], {"planes": 2}),
        (["UA", "2026-11-23"], {"planes": 1}),
    ]


def test_sketches_are_read_over_cursors_that_read_text_alone_as_over_others(twins, installed_url):
    feed = twins(FLIGHTS)
    feed.commit(flown("EWR", "AA", 1, 10.0, "N1", "N2"), flown("EWR", "UA", 3, 20.0, "N2"))
    reader = feed.readers()[0]

    with psycopg.connect(installed_url, autocommit=True, cursor_factory=psycopg.ClientCursor) as conn:
        over_text = reader.on(conn)
        assert over_text.groups(["origin"]).parsed() == reader.groups(["origin"]).parsed()
        keys = [("EWR", carrier, date(2026, 11, 23)) for carrier in ("AA", "UA")]
        assert over_text.combine(keys).parsed() == reader.combine(keys).parsed()


@BOTH
def test_groups_are_ordered_by_their_own_values_and_limited(twins, place):
    feed = twins(SOLD)
    feed.commit(sold("a", 1, 5), sold("a", 2, 1), sold("b", 1, 4), sold("c", 1, 4), sold("d", 9, 0))
    reader = feed.readers()[place]

    assert groups(reader, ["page"], order_by="n", descending=True) == [
        ("a", 2, 6),
        ("b", 1, 4),
        ("c", 1, 4),
        ("d", 1, 0),
    ]
    assert groups(reader, ["day"], order_by="n") == [(9, 1, 0), (2, 1, 1), (1, 3, 13)]
    # No mean of nothing: last, whatever the direction.
    assert groups(reader, ["page"], order_by="mean", descending=True)[-1] == ("d", 1, 0)
    assert groups(reader, ["day"], order_by="day", descending=True, limit=2) == [(9, 1, 0), (2, 1, 1)]
    some = reader.groups(["page"], limit=2)
    assert ([each["key"] for each in some.parsed()], some.complete) == ([["a"], ["b"]], False)
    assert reader.groups(["page"], limit=4).complete


@BOTH
def test_a_prefix_a_range_and_conditions_say_which_entries_are_folded(twins, place):
    feed = twins(SOLD)
    feed.commit(*(sold(page, day, day) for page in "ab" for day in range(1, 5)))
    reader = feed.readers()[place]

    assert groups(reader, ["page"], prefix=("b",)) == [("b", 4, 10)]
    assert groups(reader, ["page"], start=("b", 3)) == [("b", 2, 7)]
    assert groups(reader, ["day"], where=[Filter("n", ">", 2), Filter("page", "=", "a")]) == [(3, 1, 3), (4, 1, 4)]
    assert groups(reader, ["day"], where=[Filter("n", ">", 9)]) == []


@BOTH
def test_what_is_open_expired_or_removed_is_left_out(twins, place):
    feed = twins(SOLD, ttl=timedelta(hours=1))
    feed.commit(sold("a", 1, 5))
    feed.wait(timedelta(hours=2))
    feed.commit(sold("a", 2, 1), sold("a", 3, 1))
    feed.commit(gone=[("a", 3)])
    feed.write(feed.begin(3), [sold("a", 2, 100), sold("b", 1, 100)])

    assert groups(feed.readers()[place], ["page"]) == [("a", 1, 1)]


@BOTH
def test_an_earlier_batch_is_told_from_the_changelog(twins, place):
    feed = twins(SOLD, changelog=True)
    feed.commit(sold("a", 1, 5), sold("a", 2, 5))
    feed.commit(sold("a", 1, 1), sold("b", 1, 7))
    reader = feed.readers()[place]

    assert groups(reader, ["page"], at_txid=1) == [("a", 2, 10)]
    assert groups(reader, ["page"], at_txid=2) == [("a", 2, 11), ("b", 1, 7)]
    assert reader.groups(["page"], at_txid=1).txid == 1


def test_without_a_changelog_rows_that_have_moved_on_are_out_of_reach(twins):
    feed = twins(SOLD)
    for _ in range(4):
        feed.commit(sold("a", 1, 1), sold("b", 1, 1))
    reader = feed.readers()[0]

    assert groups(reader, ["page"], at_txid=3, where=[Filter("page", "=", "b")]) == [("b", 1, 3)]
    with pytest.raises(OutOfReachError):
        groups(reader, ["page"], at_txid=1)


@BOTH
def test_more_rows_than_may_be_folded_are_refused(twins, place):
    feed = twins(SOLD)
    feed.commit(*(sold("a", day, 1) for day in range(6)), sold("b", 1, 1))
    reader = feed.readers()[place]

    assert groups(reader, ["page"], most_folded=7) == [("a", 6, 6), ("b", 1, 1)]
    with pytest.raises(RangeTooLargeError, match="this one has over 5"):
        groups(reader, ["page"], most_folded=5)
    assert groups(reader, ["page"], prefix=("b",), most_folded=5) == [("b", 1, 1)]


@BOTH
def test_what_cannot_be_grouped_is_named(twins, place):
    feed = twins(SOLD)
    feed.commit(sold("a", 1, 1))
    reader = feed.readers()[place]

    with pytest.raises(SpecError, match="no key column 'n' to group by; there are page, day"):
        reader.groups(["n"])
    with pytest.raises(SpecError, match="name one or more key columns to group by: page, day"):
        reader.groups([])
    with pytest.raises(SpecError, match="no measure 'x'"):
        reader.groups(["page"], order_by="x")
    with pytest.raises(SpecError, match="groups by page cannot be ordered by 'day'"):
        reader.groups(["page"], order_by="day")
    with pytest.raises(FilterError):
        reader.groups(["page"], where=[Filter("x", "=", 1)])
    documents = twins(StateSpec("documents", key={"page": "text"}, value="jsonb"))
    with pytest.raises(SpecError, match="holds JSON values, which cannot be folded"):
        documents.readers()[place].groups(["page"])
