"""run(): what a test gives becomes states by the real path of a batch, and a state that is wrong is found."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest

from tidegauge.pipelines.batch.runner import BatchRunner
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.operators.counts import RunningTotal
from tidegauge.pipelines.sources.files.formats import CsvFiles, JsonFiles, ParquetFiles, TextFiles
from tidegauge.pipelines.sources.redis.streams import RedisStreams
from tidegauge.pipelines.sources.simple import Rate
from tidegauge.state_backends import Count, Last, Max, Quantiles, RetractableMin, RowCount, StateSpec, Sum
from tidegauge.state_backends.errors import InputChangedError
from tidegauge.testing import Advance, Compact, Crash, DifferenceError, Expire, Replay, Restart, run
from tidegauge.testing.plain_folds import PLAIN_FOLDS

pytestmark = pytest.mark.spark

ORDER = "product string NOT NULL, amount decimal(12, 2), day date"
BY_PRODUCT = StateSpec(
    "by_product",
    key={"product": "text"},
    measures={"orders": Count(), "revenue": Sum("amount", "numeric(18, 2)")},
    changelog=True,
)
BY_DAY = StateSpec("by_day", key={"day": "date"}, measures={"largest": Max("amount", "numeric(18, 2)")})

TEA, BREAD = {"product": "tea", "amount": "4.50"}, {"product": "bread", "amount": Decimal("3.20")}


def orders(source=None, *specs):
    stream = Stream.read(source or JsonFiles("/nowhere/orders", schema=ORDER))
    return Pipeline("orders", [stream.group_by(*spec.key).persistent_aggregate(spec) for spec in specs or [BY_PRODUCT]])


def attempts(result):
    return [(batch.txid, batch.attempts) for batch in result.batches]


def test_rows_become_states_and_dead_letters_as_the_source_has_them(tidegauge_run):
    day = datetime(2026, 1, 1, 8, tzinfo=UTC)
    result = tidegauge_run(
        orders(None, BY_PRODUCT, BY_DAY), [[TEA, BREAD | {"day": date(2026, 1, 1)}], ["no JSON"]], at=day
    )

    assert result["by_product"] == {
        "tea": {"orders": 1, "revenue": Decimal("4.50")},
        "bread": {"orders": 1, "revenue": Decimal("3.20")},
    }
    assert result["by_day"] == {"2026-01-01": {"largest": Decimal("3.20")}}
    assert [(letter.line, letter.line_number, letter.reason[:8]) for letter in result.dead_letters[-1:]] == [
        ("no JSON", 1, "not JSON")
    ]
    assert [(batch.txid, batch.rows_in, batch.time) for batch in result.batches] == [
        (1, 2, day),
        (2, 1, day + timedelta(seconds=1)),
    ]
    assert result.checked == {"by_product": ["one fold of all rows"], "by_day": ["one fold of all rows"]}
    assert result.conn.execute("SELECT sum(orders) FROM tidegauge_live.by_product").fetchone() == (2,)


def test_whatever_a_driver_that_died_has_written_every_row_counts_once(tidegauge_run):
    steps = [
        [TEA, BREAD],
        Crash("mid_write"),
        Replay([BREAD, BREAD]),
        [TEA],
        Crash("after_begin"),
        Crash("before_commit"),
        Restart(),
        [TEA, TEA],
        Crash("after_commit"),
        Compact(),
        [BREAD],
        Replay([TEA]),
    ]

    result = tidegauge_run(orders(), steps, expected={"by_product": lambda rows: _recounted(rows)})

    assert result["by_product"]["tea"]["orders"] == 4
    assert attempts(result) == [(1, 2), (2, 3), (3, 1), (4, 2)]
    assert result.checked["by_product"] == ["one fold of all rows", "the test"]


def _recounted(rows):
    products = [row["product"] for row in rows]
    return {product: {"orders": products.count(product)} for product in products}


def test_a_state_in_redis_is_compared_with_a_run_without_faults_and_leaves_nothing_behind(tidegauge_run):
    spec = StateSpec("amounts", key={"product": "text"}, measures={"half": Quantiles("amount", [0.5])}, backend="redis")

    for _ in range(2):
        result = tidegauge_run(orders(None, spec), [[TEA, BREAD], Crash("mid_write"), [TEA]])

        assert result.checked["amounts"][-1] == "a run without faults"
        assert sorted(result["amounts"]) == [("bread",), ("tea",)]


def test_a_revert_that_does_nothing_is_found_with_the_key_and_its_batches(tidegauge_run, monkeypatch):
    monkeypatch.setattr(BatchRunner, "_revert", lambda *given: None)
    changes = Stream.read(JsonFiles("/nowhere/orders", schema=ORDER)).each(change="1L").project("product", "change")
    totals = StateSpec("totals", key={"product": "text"}, measures={"n": Sum("change", type="bigint")})
    by_updater = changes.partition_persist(totals, RunningTotal(key=("product",), total="n", change="change"))
    counts = StateSpec("counts", key={"product": "text"}, measures={"n": Count()})
    pipeline = Pipeline("orders", [changes.group_by("product").persistent_aggregate(counts), by_updater])

    with pytest.raises(DifferenceError) as raised:
        tidegauge_run(pipeline, [[BREAD], [TEA], Crash("mid_write"), Replay([BREAD])])

    assert str(raised.value).splitlines() == [
        f"state {state!r}, key ('tea',): got {{'n': 1}}, expected nothing by {by}; written by batches 2"
        for state, by in {"counts": "one fold of all rows", "totals": "a run without faults"}.items()
    ]


def test_a_wrong_measure_is_named_with_both_values(tidegauge_run, monkeypatch):
    wrong = replace(PLAIN_FOLDS[Count], fold=lambda count, rows: 7)
    monkeypatch.setitem(PLAIN_FOLDS, Count, wrong)

    with pytest.raises(AssertionError, match=r"state 'by_product', key \('tea',\), measure 'orders': got 2, expected 7 "
                       "by one fold of all rows; written by batches 1, 2"):  # fmt: skip
        tidegauge_run(orders(), [[TEA], [TEA]])


@dataclass
class Order:
    product: str
    amount: Decimal


@pytest.mark.parametrize(("source", "rows"), [
    (CsvFiles("/nowhere/csv", schema=ORDER), [TEA, "tea,9.00,", ("bread", 1, "2026-01-01"), "tea,much,"]),
    (ParquetFiles("/nowhere/parquet", schema=ORDER), [TEA, Order("tea", Decimal(9)), ("bread", 1, "2026-01-01"),
                                                     {"amount": 1}]),
])  # fmt: skip
def test_rows_of_every_form_go_through_the_reader_of_the_source(tidegauge_run, source, rows):
    result = tidegauge_run(orders(source), [rows])

    assert {key: value["revenue"] for key, value in result["by_product"].items()} == {
        ("tea",): Decimal("13.50"),
        ("bread",): Decimal(1),
    }
    assert len(result.dead_letters) == 1


def test_rows_that_break_a_rule_are_dead_letters_and_left_out_of_the_fold(tidegauge_run):
    sold = Stream.read(JsonFiles("/nowhere/orders", schema=ORDER)).reject("amount > 4", reason="too expensive")
    pipeline = Pipeline("orders", [sold.group_by("product").persistent_aggregate(BY_PRODUCT)])

    result = tidegauge_run(pipeline, [[TEA, BREAD], Crash("mid_write"), [BREAD, {"product": "bread"}]])

    assert {key: value["orders"] for (key,), value in result["by_product"].items()} == {"bread": 3}
    assert result.checked == {"by_product": ["one fold of all rows"]}
    assert [(letter.txid, letter.reason) for letter in result.dead_letters] == [(1, "rejected: too expensive")]
    assert [batch.dead_letters for batch in result.batches] == [1, 0]


def test_sources_without_files_are_given_events_and_several_are_told_apart_by_name(tidegauge_run):
    clicks = Stream.read(RedisStreams("clicks", schema="user string, at timestamp"))
    lines = Stream.read(TextFiles("/nowhere/lines")).each(user="line")
    last = StateSpec("seen", key={"user": "text"}, measures={"times": Count(), "at": Last("at", "at", "timestamptz")})
    counted = clicks.merge(lines).group_by("user").persistent_aggregate(last)
    pipeline = Pipeline("clicks", [counted], bootstrap=list(clicks.inputs))
    nine = "2026-01-01T09:00:00+00:00"

    result = tidegauge_run(pipeline, [{"clicks": [{"user": "ann", "at": nine}]}, {"lines": ["ann", "bob"]}])

    assert result["seen"] == {
        "ann": {"times": 2, "at": datetime.fromisoformat(nine)},
        "bob": {"times": 1, "at": None},
    }
    with pytest.raises(PipelineError, match="has 2 sources; give the rows of a batch as a dict by source: 'clicks'"):
        tidegauge_run(pipeline, [["ann"]])
    with pytest.raises(PipelineError, match="has no source 'views'; it has clicks, lines"):
        tidegauge_run(pipeline, [{"views": []}])


def test_a_row_with_a_column_that_the_schema_lacks_is_refused(tidegauge_run):
    with pytest.raises(
        PipelineError, match="source 'orders': row 2 has column 'amuont'; the schema has product, amount, day"
    ):
        tidegauge_run(orders(), [[TEA, {"product": "tea", "amuont": 1}]])


def test_time_passes_as_the_test_says_and_keys_end_with_it(tidegauge_run):
    spec = replace(BY_PRODUCT, ttl=timedelta(days=7))
    steps = [[TEA], Advance(timedelta(days=5)), [BREAD], Advance(timedelta(days=5)), Expire(), [BREAD]]

    result = tidegauge_run(orders(None, spec), steps)

    assert result["by_product"] == {"bread": {"orders": 2, "revenue": Decimal("6.40")}}
    assert result.conn.execute("SELECT product FROM tidegauge_state.by_product").fetchall() == [("bread",)]
    assert result.unchecked == {
        "by_product": ["its keys end 7 days, 0:00:00 after their last update, and 10 days, 0:00:03 have passed"]
    }


def test_keys_in_redis_end_by_the_clock_of_the_run(tidegauge_run):
    spec = replace(BY_PRODUCT, ttl=timedelta(minutes=1), backend="redis")
    steps = [[TEA], Advance(timedelta(seconds=30)), [BREAD], Advance(timedelta(seconds=30))]

    result = tidegauge_run(orders(None, spec), steps, at=datetime(2020, 1, 1, tzinfo=UTC))

    assert list(result["by_product"]) == [("bread",)]


def test_late_tuples_reach_the_stream_that_reads_them_and_a_watermark_may_go_on_without_input(tidegauge_run):
    views = Stream.read(JsonFiles("/nowhere/views", schema="user string, at timestamp"))
    timed = views.with_watermark("at", "1 minute", allowed_lateness="1 minute", idle_after="1 hour")
    in_time = StateSpec("in_time", key={"user": "text"}, measures={"views": Count()})
    pipeline = Pipeline(
        "views",
        [
            timed.group_by("user").persistent_aggregate(in_time),
            timed.late().group_by("user").persistent_aggregate(replace(in_time, name="late")),
        ],
    )
    batches = [[{"user": "ann", "at": "2026-01-01T10:00:00Z"}], [{"user": "bob", "at": "2026-01-01T09:00:00Z"}]]
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    result = tidegauge_run(pipeline, [*batches, Advance(timedelta(hours=2)), []], at=noon)

    assert (result["in_time"], result["late"]) == ({"ann": {"views": 1}}, {"bob": {"views": 1}})
    assert result.dead_letters == []
    first, _, last = (batch.watermark for batch in result.batches)
    assert first < last


def test_what_has_no_plain_fold_or_no_guarantee_is_said(tidegauge_run):
    numbers = Stream.read(Rate(1))
    spread = StateSpec("spread", measures={"n": Count(), "middle": Quantiles("value", (0.5,))})
    pipeline = Pipeline("numbers", [numbers.persistent_aggregate(spread)])
    rows = [{"value": 1}, {"value": 2}, {"value": 3}]

    once = tidegauge_run(pipeline, [rows])
    twice = tidegauge_run(pipeline, [rows, Crash()])

    assert once["spread"][()]["n"] == 3
    assert once.unchecked == {"spread": ["measure 'middle' has no plain fold"]}
    assert twice.checked == {"spread": []}
    assert twice.unchecked["spread"][0].startswith("its guarantee is ")


def test_a_promise_that_the_source_breaks_is_refused_as_by_a_driver(tidegauge_run):
    spec = replace(BY_PRODUCT, kind="transactional")

    with pytest.raises(InputChangedError, match="row 000001"):
        tidegauge_run(orders(None, spec), [[TEA], Crash(), Replay([BREAD])])


def test_a_run_leaves_no_database_behind(tidegauge_servers, tidegauge_spark):
    server = tidegauge_servers["DATABASE_URL"]
    databases = "SELECT datname FROM pg_database"
    with psycopg.connect(server) as conn:
        before = conn.execute(databases).fetchall()

        result = run(orders(), [[TEA]], spark=tidegauge_spark, dsn=server)

        assert result.conn.closed
        assert conn.execute(databases).fetchall() == before


def test_rows_that_are_taken_away_again_are_taken_from_the_fold_of_all_rows_too(tidegauge_run):
    spec = StateSpec(
        "now", {"product": "text"}, {"rows": RowCount(), "least": RetractableMin("amount", "numeric(12, 2)")}
    )
    changes = Stream.read(JsonFiles("/nowhere/changes", schema=f"{ORDER}, op string")).retract("if(op = 'd', -1, 1)")
    by_grams = StateSpec("by_grams", {"grams": "double precision"}, {"rows": RowCount()})
    grouped = [changes.group_by("product"), changes.each(grams="double('NaN')").group_by("grams")]
    pipeline = Pipeline(
        "now", [fed.persistent_aggregate(each) for fed, each in zip(grouped, [spec, by_grams], strict=True)]
    )
    dear = TEA | {"amount": "9.00"}

    result = tidegauge_run(pipeline, [[TEA, dear, BREAD], Crash("mid_write"), [TEA | {"op": "d"}, BREAD | {"op": "d"}]])

    assert result["now"] == {"tea": {"rows": 1, "least": Decimal("9.00")}}
    assert result["by_grams"] == {"NaN": {"rows": 1}}
    assert result.checked == {name: ["one fold of all rows"] for name in ("now", "by_grams")}
