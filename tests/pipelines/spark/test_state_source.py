"""The data source "tidegauge": a state as a DataFrame, one whole batch of it whatever goes on beside."""

import json
import threading
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThan, LessThanOrEqual

from tests.contracts.backends import emptied, redis_client
from tests.docs.blocks import program
from tests.state_backends.feed import Feed
from tests.state_backends.store_feed import StoreFeed
from tidegauge.pipelines.errors import PipelineError, RuntimeSetupError
from tidegauge.pipelines.spark.register import PUSHDOWN, check_version, register
from tidegauge.pipelines.spark.state_filters import narrowed
from tidegauge.pipelines.spark.state_source import opened, spark_type
from tidegauge.state_backends import Count, Max, Mean, StateSpec
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.maintenance import compact
from tidegauge.state_backends.reader.bounds import KeyRange

ORDERS = StateSpec(
    "orders_by_day",
    key={"day": "date", "shop": "text"},
    measures={
        "orders": Count(),
        "mean": Mean("ms"),
        "largest": Max("cost", type="numeric(20, 4)"),
        "last_at": Max("at", type="timestamptz"),
    },
    changelog=True,
)
DAY, AT = date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)


def orders(*shops, day=DAY, orders=1):
    row = {"day": day, "orders": orders, "mean_sum": 0.3, "mean_count": 3, "largest": Decimal("0.1"), "last_at": AT}
    return [row | {"shop": shop} for shop in shops]


@pytest.fixture
def feed(conn):
    return Feed(conn, [ORDERS], pipeline="orders")


@pytest.fixture
def load(spark: SparkSession, database_url):
    def load(**options):
        reader = spark.read.format("tidegauge").option("dsn", database_url).option("state", "orders_by_day")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()

    return load


def test_spark_finds_it_by_its_name_and_has_types_and_values_exactly(feed, load):
    feed.run([*orders("a"), *orders("b", orders=1 << 60)])

    state = load()

    assert state.schema.simpleString() == (
        "struct<day:date,shop:string,orders:bigint,mean:double,largest:decimal(20,4),last_at:timestamp>"
    )
    assert [tuple(row)[:-1] for row in state.orderBy("shop").collect()] == [
        (DAY, "a", 1, 0.3 / 3, Decimal("0.1000")),
        (DAY, "b", 1 << 60, 0.3 / 3, Decimal("0.1000")),
    ]
    assert state.where(f"last_at = timestamp '{AT.isoformat()}'").count() == 2
    assert load(measures="mean").columns == ["day", "shop", "mean"]
    assert load(start=json.dumps(["2024-02-29", "b"])).select("shop").collect() == [("b",)]


def test_a_state_that_is_spread_over_buckets_is_read_in_ranges_as_of_the_batch_of_the_load(conn, database_url):
    spec = StateSpec("orders_by_shop", {"shop": "text"}, {"orders": Count()}, backend="redis", partitions=8)
    feed, shops = StoreFeed(conn, emptied(redis_client(), spec)), [f"{number:04}" for number in range(2_000)]
    feed.run([{"shop": shop, "orders": 1} for shop in shops])
    read = opened({"dsn": database_url, "state": spec.name})
    feed.run([{"shop": shop, "orders": 1} for shop in shops])

    schema = pa.schema({"shop": pa.string(), "orders": pa.int64()})
    parts = [[row for rows in read.rows(part, schema) for row in rows.to_pylist()] for part in read.ranges()]

    assert [row for rows in parts for row in rows] == [{"shop": shop, "orders": 1} for shop in shops]
    assert [len(rows) for rows in parts] == pytest.approx([500] * 4, abs=100)


def test_all_tasks_of_all_jobs_read_the_batch_of_the_load(feed, load, conn):
    shops = [f"{number:04}" for number in range(2_000)]
    feed.run(orders(*shops))
    state = load(partitions=8)
    stopping = threading.Event()

    def write():
        # Every batch adds one order to every shop, so in a whole batch all shops have as many.
        with psycopg.connect(feed.conn.info.dsn, password=feed.conn.info.password, autocommit=True) as other:
            while not stopping.is_set():
                batch = feed.begin(feed.next_batch_id())
                feed.apply(batch, ORDERS, orders(*shops), other)
                feed.ledger.commit(batch)

    with psycopg.connect(feed.conn.info.dsn, password=feed.conn.info.password, autocommit=True) as maintenance:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert state.rdd.getNumPartitions() == 8
            counted = [{row.orders: row["count"]} for row in state.groupBy("orders").count().collect()]
            list(compact(maintenance, ORDERS, keep=timedelta(days=1)))
            assert state.join(state.alias("again"), ["day", "shop", "orders"]).count() == 2_000
        finally:
            stopping.set()
            writer.join()

    assert counted == [{1: 2_000}]
    newest = load().select("orders").distinct().collect()
    assert newest == [(feed.next_batch_id(),)]
    assert load(at_txid=2).select("orders").distinct().collect() == [(2,)]


def test_what_is_no_longer_there_is_refused_by_name(feed, load, conn):
    feed.run(orders("a"))
    state = load()

    feed.run(orders("a"), batch_id=0)  # comes again with other events

    with pytest.raises(Exception, match="state 'orders_by_day': batch 1 has changed since this read began"):
        state.collect()
    with pytest.raises(Exception, match="batch 7 is not committed, the newest one is 1"):
        load(at_txid=7)
    with pytest.raises(Exception, match=r"leave out .schema\(..\), and name what to read in the option 'measures'"):
        load().sparkSession.read.schema("shop string").format("tidegauge").load().collect()


def test_a_filter_never_leaves_out_what_spark_would_keep(feed, database_url):
    read = opened({"dsn": database_url, "state": "orders_by_day"})
    day = EqualTo(("day",), DAY)

    assert narrowed(read, [GreaterThan(("shop",), "a")]).bounds == KeyRange()
    assert narrowed(read, [day]).bounds == KeyRange(prefix=(DAY,))
    assert narrowed(read, [day, GreaterThan(("shop",), "a"), LessThan(("shop",), "c")]).bounds == KeyRange(
        (DAY,), (DAY, "a"), (DAY, "c")
    )
    assert narrowed(read, [day, LessThanOrEqual(("shop",), "c")]).bounds == KeyRange(prefix=(DAY,))
    assert narrowed(read, [EqualTo(("day",), "no day")]).bounds == KeyRange()
    own = opened({"dsn": database_url, "state": "orders_by_day", "prefix": '["2024-03-01"]'})
    assert narrowed(own, [day]) == own


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'state' is missing"),
        ({"stat": "x"}, "option 'stat' is not an option of format 'tidegauge': state, dsn, at_txid, at_time"),
        ({"state": "orders_by_day", "at_txid": "newest"}, "'at_txid': 'newest' is not the number of a batch"),
        ({"state": "orders_by_day", "at_time": "yesterday"}, "'yesterday' is not a time with an offset"),
        ({"state": "orders_by_day", "at_time": "2024-01-01T00:00:00"}, "is not a time with an offset"),
        ({"state": "orders_by_day", "at_txid": "1", "at_time": AT.isoformat()}, "both name a batch; set only one"),
        ({"state": "orders_by_day", "partitions": "0"}, "'0' is not a number from 1 to 1000"),
        ({"state": "orders_by_day", "prefix": "JFK"}, r"'JFK' is not JSON; write the first parts of a key"),
    ],
)
def test_a_wrong_option_is_refused_by_name(feed, database_url, options, message):
    with pytest.raises(PipelineError, match=message):
        opened({"dsn": database_url, **options})


def test_the_address_comes_from_the_environment_too(feed, database_url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", database_url)
    assert opened({"state": "orders_by_day"}).batch.txid == 0

    with pytest.raises(UnknownStateError, match="state 'nope' is not registered"):
        opened({"state": "nope"})
    monkeypatch.setenv("DATABASE_URL", "")
    with pytest.raises(PipelineError, match="option 'dsn' is missing"):
        opened({"state": "orders_by_day"})


def test_a_type_that_only_postgresql_has_is_text():
    assert [spark_type(kind) for kind in ("numeric(38, 2)", "jsonb", "uuid", "double precision[]")] == [
        "decimal(38,2)",
        "string",
        "string",
        "string",
    ]


def test_spark_before_4_is_told_what_it_needs():
    check_version("4.0.0")
    with pytest.raises(RuntimeSetupError, match=r"Spark 3.5.6: .* needs Spark 4.0 or later; read the state as Arrow"):
        check_version("3.5.6")


def test_the_page_on_it_runs_and_filters_find_what_they_did(feed, load, spark, database_url, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", database_url)
    feed.run([*orders("a", "b", "c"), *orders("a", "b", day=date(2024, 3, 1))])
    # Spark's own processes began before the test, and with another environment.
    page = program("read-from-spark.md").replace('.option("state"', f'.option("dsn", "{database_url}").option("state"')
    page = page.replace(".options(state", f'.options(dsn="{database_url}", state')
    named: dict[str, Any] = {"spark": spark}
    try:
        exec(compile(page, "read-from-spark.md", "exec"), named)  # noqa: S102
        filtered = load().where("day = date '2024-02-29' and shop > 'a' and orders < 5").collect()
    finally:
        spark.conf.set(PUSHDOWN, "false")
        register(spark)

    assert sorted(row.shop for row in filtered) == ["b", "c"]
    assert named["morning"].columns == ["day", "shop", "orders"]
    assert named["table"].num_rows == 5
