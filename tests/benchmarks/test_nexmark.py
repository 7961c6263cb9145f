"""The events of Nexmark are as it defines them, and the results of each query equal a plain model's."""

import json
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import psycopg
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from benchmarks.nexmark import spark_alone
from benchmarks.nexmark.events import BID, events_table, lay_out_events
from benchmarks.nexmark.queries import QUERIES, SESSIONS, pipeline
from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.state_backends import Catalog, StateReader

EVENTS, FILES = 3_000, 3
# The events are a hundredth as dense as those of the benchmark, so that they last 30 s: windows and sessions end.
STRETCHED = 100
BID_COLUMNS = ("auction", "bidder", "price", "channel", "url", "date_time", "extra")
GAP = timedelta(seconds=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark") / "events"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("benchmarks.nexmark.events.EVENTS_PER_SECOND", 10_000 // STRETCHED)
        lay_out_events(folder, EVENTS, FILES)
    return folder


@pytest.fixture(scope="module")
def bids(folder: Path) -> list[dict]:
    from pyarrow import dataset

    events = dataset.dataset(sorted(folder.iterdir())).to_table()
    return events.filter(pc.equal(events["event_type"], BID)).to_pylist()


@pytest.fixture
def results(tidegauge_spark: SparkSession, conn: psycopg.Connection, database_url: str, folder: Path, tmp_path: Path):
    """Runs a query, and returns a state's values by key; a key of one column is that column."""

    def run(query: str, *states: str) -> list[dict]:
        driven = pipeline(query, folder)
        Driver(driven, tidegauge_spark, database_url, RunOptions(tmp_path / "checkpoint", once=True)).run()
        return [values(conn, state) for state in states or [query]]

    return run


def values(conn, state):
    entries = StateReader(conn, Catalog(conn).get(state)).page(limit=10_000).parsed()
    return {tuple(each["key"]) if len(each["key"]) > 1 else each["key"][0]: each["value"] for each in entries}


def window(time, seconds=10):
    return datetime.fromtimestamp(time.timestamp() // seconds * seconds, UTC)


def at(text):
    return datetime.fromisoformat(text)


def bid_of(text):
    bid = json.loads(text)
    return bid | {"date_time": at(bid["date_time"])}


def as_bid(row):
    return {name: row[name] for name in BID_COLUMNS}


def test_of_fifty_events_46_are_bids_and_most_are_hot():
    events = events_table(1_000_000, 1_100_000)

    kinds = Counter(events["event_type"].to_pylist())
    bids = events.filter(pc.equal(events["event_type"], BID))
    # A bid's event decides the hot auction: the last one before it, rounded down to a hundred.
    hot = Counter(auction % 100 == 1_000 % 100 for auction in bids["auction"].to_pylist())
    by_hot_bidder = Counter(bidder % 100 == 1 for bidder in bids["bidder"].to_pylist())
    assert kinds == {0: 2_000, 1: 6_000, 2: 92_000}
    assert hot[True] / 92_000 == pytest.approx(0.5, abs=0.02)
    assert by_hot_bidder[True] / 92_000 == pytest.approx(0.75, abs=0.02)
    assert min(bids["price"].to_pylist()) >= 100
    assert max(bids["price"].to_pylist()) <= 100_000_000


def test_the_same_numbers_give_the_same_events():
    assert events_table(50, 250) == events_table(50, 250)
    assert events_table(50, 250) != events_table(100, 300)


def test_q5_hot_auctions_equal_a_plain_model(bids, results):
    counts = defaultdict(Counter)
    for bid in bids:
        last = window(bid["date_time"], 2)
        for back in range(5):
            counts[last - back * timedelta(seconds=2)][bid["auction"]] += 1

    [found] = results("q5")

    most = {start: max(of_window.values()) for start, of_window in counts.items()}
    assert {at(start): {each["auction"]: each["bids"] for each in hot} for start, hot in found.items()} == {
        start: {auction: count for auction, count in counts[start].items() if count == most[start]} for start in counts
    }


def test_q7_highest_bids_equal_a_plain_model(bids, results):
    highest = defaultdict(list)
    for bid in sorted(bids, key=lambda bid: -bid["price"]):
        best = highest[window(bid["date_time"])]
        if not best or best[0]["price"] == bid["price"]:
            best.append(as_bid(bid))

    [found] = results("q7")

    assert {at(start): [bid_of(each["bid"]) for each in best] for start, best in found.items()} == highest


def test_q11_closed_and_open_sessions_equal_a_plain_model(bids, results):
    times = defaultdict(list)
    for bid in bids:
        times[bid["bidder"]].append(bid["date_time"])
    expected = {}
    for bidder, of_bidder in times.items():
        breaks = [place for place, (one, next_) in enumerate(pairwise(of_bidder), 1) if next_ - one >= GAP]
        for first, after in pairwise([0, *breaks, len(of_bidder)]):
            expected[bidder, of_bidder[first]] = (after - first, of_bidder[after - 1])

    closed, still_open = results("q11", SESSIONS.name, "q11_open")

    found = {(bidder, at(start)): (each["bids"], at(each["ended"])) for (bidder, start), each in closed.items()}
    for bidder, value in still_open.items():
        found |= {(bidder, at(each["start"])): (each["events"], at(each["end"])) for each in value["sessions"]}
    assert closed
    assert found == expected


def test_q12_counts_per_bidder_in_windows_of_the_time_of_processing(bids, results):
    before = window(datetime.now(UTC))

    [found] = results("q12")

    counts = Counter()
    for (bidder, start), value in found.items():
        assert before <= at(start) == window(at(start)) <= datetime.now(UTC)
        counts[bidder] += value["bids"]
    assert counts == Counter(bid["bidder"] for bid in bids)


def test_q17_statistics_per_auction_and_day_equal_a_plain_model(bids, results):
    prices = defaultdict(list)
    for bid in bids:
        prices[bid["auction"], f"{bid['date_time']:%Y-%m-%d}"].append(bid["price"])

    [found] = results("q17")

    assert found == {
        key: {
            "total_bids": len(each),
            "rank1_bids": sum(price < 10_000 for price in each),
            "rank2_bids": sum(10_000 <= price < 1_000_000 for price in each),
            "rank3_bids": sum(price >= 1_000_000 for price in each),
            "min_price": min(each),
            "max_price": max(each),
            "avg_price": pytest.approx(sum(each) / len(each)),
            "sum_price": sum(each),
        }
        for key, each in prices.items()
    }


def test_q18_last_bids_equal_a_plain_model(bids, results):
    expected = defaultdict(list)
    for bid in bids:
        same = expected[bid["bidder"], bid["auction"]]
        if same and same[0]["date_time"] < bid["date_time"]:
            same.clear()
        same.append(as_bid(bid))

    [found] = results("q18")

    assert found.keys() == expected.keys()
    # Of bids of the same time, SQL may return any.
    assert all(bid_of(value["bid"]) in expected[key] for key, value in found.items())


def test_q19_top_ten_bids_equal_a_plain_model(bids, results):
    expected = defaultdict(list)
    for bid in bids:
        expected[bid["auction"]].append(as_bid(bid))

    [found] = results("q19")

    assert {auction: [each["price"] for each in top] for auction, top in found.items()} == {
        auction: sorted((bid["price"] for bid in each), reverse=True)[:10] for auction, each in expected.items()
    }
    for auction, top in found.items():
        bids_found = [bid_of(each["bid"]) for each in top]
        assert all(bid in expected[auction] for bid in bids_found)
        assert all(bids_found.count(bid) == 1 for bid in bids_found)


def test_each_query_is_compared_with_one_in_spark_that_is_accepted_as_a_stream(tidegauge_spark, folder, tmp_path):
    assert spark_alone.QUERIES.keys() == QUERIES.keys()

    for query in spark_alone.QUERIES:
        rows, mode = spark_alone.frame(query, folder, tidegauge_spark)
        writer = rows.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / query)).start().awaitTermination()
