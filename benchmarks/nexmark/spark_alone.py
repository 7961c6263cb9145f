"""The same queries in Spark alone: streaming aggregates in its RocksDB state store, whose updates are discarded."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.nexmark.events import BID, SCHEMA
from benchmarks.nexmark.queries import BID_TEXT, TEN_SECONDS, TWO_SECONDS


def frame(query: str, folder: Path, spark: SparkSession) -> tuple[DataFrame, str]:
    """Return a query over the events of a folder, one file per batch, and its output mode."""
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return QUERIES[query](events.where(f"event_type = {BID}")), MODES.get(query, "update")


def hot_auctions(bids: DataFrame) -> DataFrame:
    window = F.window("date_time", TEN_SECONDS, TWO_SECONDS)
    counted = bids.withWatermark("date_time", "0 seconds").groupBy(window, "auction").count()
    return counted.groupBy("window").agg(F.max(F.struct("count", "auction")))


def highest_bids(bids: DataFrame) -> DataFrame:
    return bids.groupBy(F.window("date_time", TEN_SECONDS)).agg(F.max_by(F.expr(BID_TEXT), "price"))


def sessions(bids: DataFrame) -> DataFrame:
    timed = bids.withWatermark("date_time", "0 seconds")
    return timed.groupBy("bidder", F.session_window("date_time", TEN_SECONDS)).count()


def bids_per_bidder(bids: DataFrame) -> DataFrame:
    arrived = bids.withColumn("arrived", F.current_timestamp())
    return arrived.groupBy("bidder", F.window("arrived", TEN_SECONDS)).count()


def auction_days(bids: DataFrame) -> DataFrame:
    bands = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
    return bids.groupBy("auction", F.date_format("date_time", "yyyy-MM-dd")).agg(
        F.count(F.lit(1)),
        *(F.count_if(F.expr(band)) for band in bands),
        F.min("price"),
        F.max("price"),
        F.avg("price"),
        F.sum("price"),
    )


def last_bids(bids: DataFrame) -> DataFrame:
    return bids.groupBy("bidder", "auction").agg(F.max(F.struct("date_time", F.expr(BID_TEXT))))


def top_bids(bids: DataFrame) -> DataFrame:
    return bids.groupBy("auction").agg(F.max_by(F.struct("price", F.expr(BID_TEXT)), "price", 10))


QUERIES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "q5": hot_auctions,
    "q7": highest_bids,
    "q11": sessions,
    "q12": bids_per_bidder,
    "q17": auction_days,
    "q18": last_bids,
    "q19": top_bids,
}
# Spark aggregates an aggregate only when the inner one's windows have closed, and does not update sessions in place.
MODES = {"q5": "append", "q11": "append"}
