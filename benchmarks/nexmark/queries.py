"""Seven queries of Nexmark as pipelines, each a state that can be looked up while it is updated.

The queries are those of nexmark/nexmark, nexmark-flink/src/main/resources/queries. A bid that a query returns is one
JSON text, because a state has no rows inside a row.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from benchmarks.nexmark.events import BID, SCHEMA
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import FedState, Stream
from tidegauge.pipelines.declare.windows import sliding, tumbling
from tidegauge.pipelines.operators.counts import TopN
from tidegauge.pipelines.operators.sessions import closed_sessions
from tidegauge.pipelines.sources.files.formats import ParquetFiles
from tidegauge.state_backends import Count, Last, Max, Mean, Min, StateSpec, Sum

BID_TEXT = "to_json(struct(auction, bidder, price, channel, url, date_time, extra))"
RANK = "rank() over (partition by start order by {} desc)"
RANK = "rank() over (partition by start order by {} desc)"
TEN_SECONDS, TWO_SECONDS = "10 seconds", "2 seconds"

HOT_COUNTS = StateSpec("q5_counts", key={"start": "timestamptz", "auction": "bigint"}, measures={"bids": Count()})
HOT_AUCTIONS = StateSpec("q5", key={"start": "timestamptz"}, value="jsonb")
HIGHEST_BIDS = StateSpec("q7", key={"start": "timestamptz"}, value="jsonb")
OPEN_SESSIONS = StateSpec("q11_open", key={"bidder": "bigint"}, value="jsonb")
SESSIONS = StateSpec(
    "q11",
    key={"bidder": "bigint", "started": "timestamptz"},
    measures={"bids": Sum("events", type="bigint"), "ended": Max("ended", type="timestamptz")},
)
BIDS_PER_BIDDER = StateSpec("q12", key={"bidder": "bigint", "start": "timestamptz"}, measures={"bids": Count()})
AUCTION_DAYS = StateSpec(
    "q17",
    key={"auction": "bigint", "day": "text"},
    measures={
        "total_bids": Count(),
        "rank1_bids": Count(where="price < 10000"),
        "rank2_bids": Count(where="price >= 10000 and price < 1000000"),
        "rank3_bids": Count(where="price >= 1000000"),
        "min_price": Min("price", type="bigint"),
        "max_price": Max("price", type="bigint"),
        "avg_price": Mean("price", type="bigint"),
        "sum_price": Sum("price", type="bigint"),
    },
)
LAST_BIDS = StateSpec(
    "q18",
    key={"bidder": "bigint", "auction": "bigint"},
    measures={"bid": Last("bid", by="date_time", type="text")},
)
TOP_BIDS = StateSpec("q19", key={"auction": "bigint"}, value="jsonb")


def pipeline(query: str, folder: Path) -> Pipeline:
    """Return a query over the events of a folder, one file per batch."""
    events = Stream.read(ParquetFiles(folder, schema=SCHEMA, files_per_batch=1))
    return Pipeline(f"nexmark_{query}", [*QUERIES[query](events.where(f"event_type = {BID}"))])


def hot_auctions(bids: Stream) -> Sequence[FedState]:
    """Q5: the auctions with the most bids in each window of ten seconds, which begin every two seconds."""
    counts = bids.group_by("auction", start=sliding("date_time", TEN_SECONDS, TWO_SECONDS))
    counted = counts.persistent_aggregate(HOT_COUNTS)
    # A count that is not the largest of its batch cannot be the largest of all, because counts only grow.
    candidates = counted.new_values_stream().each(place=RANK.format("bids")).where("place = 1")
    largest = TopN(key=("start",), item="auction", count="bids", n=1, with_ties=True)
    return [counted, candidates.partition_persist(HOT_AUCTIONS, largest)]


def highest_bids(bids: Stream) -> Sequence[FedState]:
    """Q7: the bids with the highest price in each window of ten seconds."""
    windowed = bids.each(start=tumbling("date_time", TEN_SECONDS), bid=BID_TEXT)
    highest = TopN(key=("start",), item="bid", count="price", n=1, with_ties=True)
    candidates = windowed.each(place=RANK.format("price")).where("place = 1")
    return [candidates.partition_persist(HIGHEST_BIDS, highest)]


def sessions(bids: Stream) -> Sequence[FedState]:
    """Q11: the bids of each bidder per session, which ends after ten seconds without one."""
    timed = bids.project("bidder", "date_time").with_watermark("date_time", "0 seconds")
    closed = closed_sessions(timed, OPEN_SESSIONS, "date_time", timedelta(seconds=10))
    return [closed.group_by("bidder", "started").persistent_aggregate(SESSIONS)]


def bids_per_bidder(bids: Stream) -> Sequence[FedState]:
    """Q12: the bids of each bidder per ten seconds of processing time."""
    arrived = bids.each(arrived="current_timestamp()")
    return [arrived.group_by("bidder", start=tumbling("arrived", TEN_SECONDS)).persistent_aggregate(BIDS_PER_BIDDER)]


def auction_days(bids: Stream) -> Sequence[FedState]:
    """Q17: statistics of the bids per auction and day."""
    return [bids.group_by("auction", day="date_format(date_time, 'yyyy-MM-dd')").persistent_aggregate(AUCTION_DAYS)]


def last_bids(bids: Stream) -> Sequence[FedState]:
    """Q18: the last bid of each bidder for each auction."""
    return [bids.each(bid=BID_TEXT).group_by("bidder", "auction").persistent_aggregate(LAST_BIDS)]


def top_bids(bids: Stream) -> Sequence[FedState]:
    """Q19: the ten bids with the highest price of each auction."""
    place = "row_number() over (partition by auction order by price desc, bid)"
    candidates = bids.each(bid=BID_TEXT).each(place=place).where("place <= 10")
    return [candidates.partition_persist(TOP_BIDS, TopN(key=("auction",), item="bid", count="price", n=10))]


QUERIES: dict[str, Callable[[Stream], Sequence[FedState]]] = {
    "q5": hot_auctions,
    "q7": highest_bids,
    "q11": sessions,
    "q12": bids_per_bidder,
    "q17": auction_days,
    "q18": last_bids,
    "q19": top_bids,
}
