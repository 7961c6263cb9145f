"""What Spark makes of a batch, down to ties, nulls and what no column can hold; and every measure from end to end."""

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tests.pipelines.partial_aggregates import partial
from tests.state_backends.aggregators.docs_example import documented_reducer
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.aggregators import (
    Count,
    DistinctCount,
    DistinctSet,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    Quantiles,
    RetractableMax,
    RetractableMin,
    RowCount,
    StdDev,
    Sum,
    TopK,
    Variance,
)

pytestmark = pytest.mark.spark


class TestSpread:
    @pytest.fixture
    def moments(self, spark):
        """Has Spark aggregate numbers."""
        return lambda numbers: partial(spark, Variance("x"), [(number,) for number in numbers], "x double")

    def test_spark_takes_the_moments_without_losing_digits(self, moments):
        parts = moments([1e9 + 4, 1e9 + 7, None, 1e9 + 13, 1e9 + 16])

        assert parts == {"count": 4, "mean": 1e9 + 10, "m2": 90.0}

    def test_numbers_out_of_bounds(self, moments):
        for x in (math.inf, -math.inf, math.nan, 1e200):
            assert math.isnan(Variance("x").finish(moments([1.0, x])))
        assert moments([1e-200, -1e-200]) == {"count": 2, "mean": 0.0, "m2": 0.0}
        assert moments([None]) == {"count": 0, "mean": None, "m2": None}


class TestTakenAway:
    """What a batch adds and takes away again, by the sign of each row."""

    @pytest.fixture
    def signed(self, spark):
        """Has Spark aggregate values with signs."""

        def signed(aggregator, sql_type, *rows):
            frame = spark.createDataFrame(rows, f"x {sql_type}, s int").coalesce(1)
            parts = [f"{text} AS `_{suffix}`" for suffix, text in aggregator.signed_partial("s").items()]
            [row] = frame.selectExpr(*parts).toArrow().to_pylist()
            return {suffix: row[f"_{suffix}"] for suffix in aggregator.signed_partial("s")}

        return signed

    def test_counts_and_exact_totals_subtract(self, signed):
        rows = [(Decimal("0.10"), 1), (Decimal("7.25"), 1), (None, 1), (Decimal("0.10"), -1), (None, -1)]

        assert signed(RowCount(), "decimal(5,2)", *rows) == {"": 1}
        assert signed(Count("x > 1"), "decimal(5,2)", *rows, (Decimal("3.00"), -1)) == {"": 0}
        assert signed(Sum("x", type="numeric"), "decimal(5,2)", *rows) == {"": Decimal("7.25")}
        assert signed(Mean("x", type="numeric"), "decimal(5,2)", *rows) == {"sum": Decimal("7.25"), "count": 1}
        assert signed(Sum("x", type="bigint"), "bigint", (None, -1)) == {"": 0}

    def test_the_smallest_bigint_can_be_taken_away_and_a_total_out_of_range_is_null(self, signed):
        total = Sum("x", type="bigint")

        assert signed(total, "bigint", (-(2**63), -1), (-1, 1)) == {"": 2**63 - 1}
        assert signed(total, "bigint", (-(2**63), -1)) == {"": None}

    @pytest.mark.parametrize(
        ("sql_type", "spark_type", "values"),
        [
            ("bigint", "bigint", [5, -7, 2**62]),
            ("numeric", "decimal(12,2)", [Decimal("0.00"), Decimal("12.50"), Decimal("-3.07")]),
            ("double precision", "double", [0.1, 1e300, -2.0]),
            ("text", "string", ["b", "", "é"]),
            ("boolean", "boolean", [True, False]),
            ("timestamptz", "timestamp", [datetime(2013, 1, 1, 9, 0, 0, 1, UTC), datetime(1969, 1, 1, tzinfo=UTC)]),
        ],
    )  # fmt: skip
    def test_extremes_go_back_to_what_is_left(self, signed, sql_type, spark_type, values):
        low, high = RetractableMin("x", sql_type), RetractableMax("x", sql_type)
        ordered = sorted(values)
        first = signed(low, spark_type, *((value, 1) for value in values), (values[0], 1), (None, 1))
        then = signed(low, spark_type, (ordered[0], -1), (ordered[-1], -1), (None, -1))

        both = low.fold({}, first)
        assert (both[""], high.fold({}, first)[""]) == (ordered[0], ordered[-1])
        rest = sorted([*values, values[0]])
        rest.remove(ordered[0])
        rest.remove(ordered[-1])
        assert (low.fold(both, then)[""], high.fold(both, then)[""]) == (min(rest), max(rest))


class TestByTime:
    @pytest.fixture
    def chosen(self, spark):
        """Has Spark aggregate events of a number, a name and a time."""
        return lambda aggregator, *events: partial(spark, aggregator, events, "x double, name string, t string")

    NINE, TEN = "2013-01-01T09:00:00Z", "2013-01-01T10:00:00Z"
    AT_NINE, AT_TEN = datetime(2013, 1, 1, 9, tzinfo=UTC), datetime(2013, 1, 1, 10, tzinfo=UTC)

    def test_ties_go_to_the_smaller_and_to_the_larger_value(self, chosen):
        events = [(3.0, "b", self.NINE), (1.0, "é", self.NINE), (math.nan, "B", self.TEN), (7.0, "a", self.TEN)]

        assert chosen(First("x", by="t"), *events) == {"": 1.0, "at": self.AT_NINE}
        assert chosen(First("name", by="t", type="text"), *events) == {"": "b", "at": self.AT_NINE}
        assert chosen(Last("name", by="t", type="text"), *events) == {"": "a", "at": self.AT_TEN}
        assert math.isnan(chosen(Last("x", by="t"), *events)[""])

    def test_events_without_a_time_or_a_value_do_not_count(self, chosen):
        events = [(1.0, "a", self.NINE), (2.0, "b", None), (None, None, self.TEN), (3.0, "a\0b", self.TEN)]
        events += [(4.0, "c", "+10000-01-01T00:00:00Z"), (5.0, "d", "0000-12-31T23:59:59Z")]

        assert chosen(Last("name", by="t", type="text"), *events) == {"": "a", "at": self.AT_NINE}
        assert chosen(First("x", by="t"), *events) == {"": 1.0, "at": self.AT_NINE}
        assert chosen(Latest("name", x="double precision", by="t"), *events) == {
            "name": "a",
            "at_name": self.AT_NINE,
            "x": 3.0,
            "at_x": self.AT_TEN,
        }
        assert chosen(Max("t", type="timestamptz"), *events) == {"": self.AT_TEN}
        assert chosen(Min("name", type="text"), *events) == {"": "a"}

    def test_no_event_at_all_is_nothing(self, chosen):
        assert chosen(First("x", by="t")) == {"": None, "at": None}
        assert chosen(Latest("name", by="t"), (1.0, None, self.NINE)) == {"name": None, "at_name": None}

    def test_the_documented_reducer_gathers_a_batch(self, chosen):
        with documented_reducer() as recent:
            events = [(1.0, "a", self.NINE), (2.0, "b", self.TEN), (3.0, None, self.TEN), (4.0, "c", None)]

            assert chosen(recent("name", by="t"), *events) == {"": [[self.TEN, "b"], [self.NINE, "a"]]}


class TestPipeline:
    STATE = StateSpec(
        "flights",
        key={"origin": "text"},
        measures={
            "aircraft": DistinctCount("tailnum"),
            "fleet": DistinctSet("tailnum"),
            "delays": Quantiles("delay", (0.5, 1)),
            "busiest": TopK("dest", k=2),
            "spread": Variance("delay"),
            "deviation": StdDev("delay", of="population"),
            "opening": First("dest", by="time", type="text"),
            "closing": Last("delay", by="time"),
            "newest": Latest("dest", "gate", delay="double precision", by="time"),
            "last_plane": Max("tailnum", type="text"),
            "until": Max("time", type="timestamptz"),
        },
    )
    SCHEMA = "origin string, tailnum string, delay double, dest string, gate string, time timestamp"

    def flight(self, hour, plane, delay, dest, gate=None):
        time = f"2013-01-01T{hour:02}:00:00Z"
        return {"origin": "JFK", "tailnum": plane, "delay": delay, "dest": dest, "gate": gate, "time": time}

    def test_every_measure_goes_from_a_file_to_a_reader(self, workspace):
        departures = Stream.read(JsonFiles(workspace.input, schema=self.SCHEMA))
        pipeline = Pipeline("flights", [departures.group_by("origin").persistent_aggregate(self.STATE)])
        workspace.land("1.json", self.flight(6, "N1", 4.0, "ORD", gate="A1"), self.flight(7, "N2", 7.0, "é🙂"))
        workspace.run(pipeline)
        workspace.land(
            "2.json",
            self.flight(5, "N1", 13.0, "LAX", gate="B2"),
            self.flight(9, "N3", 16.0, "ORD"),
            self.flight(8, "", None, "a\0b"),
        )
        workspace.run(pipeline)

        assert workspace.values("flights") == {
            "JFK": {
                "aircraft": 3,
                "fleet": 3,
                "delays": {"0.5": 7.0, "1.0": 16.0},
                "busiest": [
                    {"item": "ORD", "count": 2, "at_least": 2},
                    {"item": "LAX", "count": 1, "at_least": 1},
                ],
                "spread": 30.0,
                "deviation": math.sqrt(22.5),
                "opening": "LAX",
                "closing": 16.0,
                "newest": {"dest": "ORD", "gate": "A1", "delay": 16.0},
                "last_plane": "N3",
                "until": "2013-01-01T09:00:00+00:00",
            }
        }
        [(sketch, tag)] = workspace.rows("SELECT aircraft_sketch, aircraft_type FROM tidegauge_state.flights")
        assert tag == "hll/text/12"
        estimates = workspace.spark.createDataFrame([(sketch,)], "sketch binary").selectExpr(
            "hll_sketch_estimate(sketch)"
        )
        assert estimates.first()[0] == 3
