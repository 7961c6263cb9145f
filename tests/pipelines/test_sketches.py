"""Sketches go both ways: Python folds what Spark made, Spark reads what Python folded, and both say the same."""

import math

import pytest

from tests.pipelines.partial_aggregates import partial
from tidegauge.state_backends.aggregators import DistinctCount, DistinctSet, Quantiles, TopK

pytestmark = pytest.mark.spark

NOTHING = {"sketch": None, "type": None, "": None}
SPARK_TOP_K = (
    "approx_top_k_estimate(named_struct('sketch', sketch, 'maxItemsTracked', 1024, "
    "'itemDataType', cast(null as string), 'itemDataTypeDDL', 'item string not null'), 10)"
)


@pytest.fixture
def sketch(spark):
    """Has Spark aggregate values of one column, `x`, as a pipeline would."""
    return lambda aggregator, values, kind: partial(spark, aggregator, [(value,) for value in values], f"x {kind}")


@pytest.fixture
def spark_says(spark):
    """Asks Spark for an expression over the columns `sketch` and `other`."""

    def spark_says(expression, sketch, other=None):
        rows = spark.createDataFrame([(sketch, other)], "sketch binary, other binary")
        return rows.selectExpr(expression).first()[0]

    return spark_says


def plane(number):
    return f"N{number}é🙂"


class TestDistinct:
    CASES = pytest.mark.parametrize(
        ("make", "estimate", "union"),
        [
            (DistinctCount, "hll_sketch_estimate(sketch)", "hll_sketch_estimate(hll_union(sketch, other))"),
            (DistinctSet, "theta_sketch_estimate(sketch)", "theta_sketch_estimate(theta_union(sketch, other))"),
        ],
    )

    @CASES
    @pytest.mark.parametrize(
        ("size", "type", "kind", "value"), [(20, "text", "string", plane), (20_000, "bigint", "bigint", int)]
    )
    def test_both_count_alike(self, sketch, spark_says, make, estimate, union, type, kind, value, size):
        aggregator = make("x", type=type)
        left = sketch(aggregator, [value(n) for n in range(size)], kind)
        right = sketch(aggregator, [value(n) for n in range(size // 2, size * 3 // 2)], kind)

        folded = aggregator.fold(aggregator.fold(NOTHING, left), right)

        assert abs(folded[""] / (size * 1.5) - 1) <= (0 if size == 20 else 0.05)
        assert spark_says(estimate, folded["sketch"]) == folded[""]
        assert spark_says(union, folded["sketch"], left["sketch"]) == pytest.approx(folded[""], rel=0.001)

    @pytest.mark.core
    @CASES
    def test_python_hashes_as_spark_does(self, sketch, make, estimate, union):
        """Else the union of what the two made would count every value twice."""
        import datasketches

        ours = datasketches.hll_sketch(12) if make is DistinctCount else datasketches.update_theta_sketch(12)
        for n in range(100):
            ours.update(plane(n))
        ours_bytes = ours.serialize_compact() if make is DistinctCount else ours.compact().serialize()
        aggregator = make("x")

        spark_made = sketch(aggregator, [plane(n) for n in range(100)], "string")

        assert aggregator.fold({"sketch": ours_bytes}, spark_made)[""] == 100

    @CASES
    def test_nulls_empty_texts_and_texts_with_a_nul_do_not_count(self, sketch, make, estimate, union):
        aggregator = make("x")

        odd = sketch(aggregator, [None, "", "a\0b", "é🙂", "é🙂"], "string")

        assert aggregator.fold(NOTHING, odd)[""] == 1
        assert aggregator.fold(NOTHING, sketch(aggregator, [None], "string"))[""] == 0

    def test_sets_of_keys_meet_in_spark_and_in_python_alike(self, sketch, spark_says):
        aircraft = DistinctSet("x")
        left, right = [
            aircraft.fold(NOTHING, sketch(aircraft, [plane(n) for n in part], "string"))
            for part in (range(15_000), range(10_000, 20_000))
        ]
        for operation, name in [
            (aircraft.intersection, "theta_intersection"),
            (aircraft.difference, "theta_difference"),
        ]:
            answer = operation(left, right)
            asked = f"theta_sketch_estimate({name}(sketch, other))"
            assert spark_says(asked, left["sketch"], right["sketch"]) == answer[""]
            assert spark_says("theta_sketch_estimate(sketch)", answer["sketch"]) == answer[""]


class TestQuantiles:
    @pytest.mark.parametrize(
        ("size", "type", "name"), [(100, "bigint", "bigint"), (50_000, "double precision", "double")]
    )
    def test_both_answer_alike(self, sketch, spark_says, type, name, size):
        shares = (0.0, 0.01, 0.5, 0.9, 1.0)
        quantiles = Quantiles("x", shares, type=type)
        numbers = [(n * 7919) % size for n in range(size)]
        typed = [float(n) if name == "double" else n for n in numbers]
        halves = [sketch(quantiles, half, name) for half in (typed[::2], typed[1::2])]

        folded = quantiles.fold(quantiles.fold(NOTHING, halves[0]), halves[1])

        for share in shares:
            from_spark = spark_says(f"kll_sketch_get_quantile_{name}(sketch, {share}D)", folded["sketch"])
            assert from_spark == folded[""][str(share)]
            assert abs(from_spark / size - share) <= (0.011 if size == 100 else 0.04)
        assert spark_says(f"kll_sketch_get_n_{name}(sketch)", folded["sketch"]) == size
        merged = spark_says(
            f"kll_sketch_get_n_{name}(kll_sketch_merge_{name}(sketch, other))", folded["sketch"], halves[0]["sketch"]
        )
        assert merged == size * 1.5

    def test_whole_numbers_of_64_bits_come_through(self, sketch):
        quantiles = Quantiles("x", (0, 1), type="bigint")

        folded = quantiles.fold(NOTHING, sketch(quantiles, [2**63 - 1, None, -(2**63)], "bigint"))

        assert folded[""] == {"0.0": -(2**63), "1.0": 2**63 - 1}

    def test_nulls_and_nan_do_not_count_and_infinities_do(self, sketch):
        quantiles = Quantiles("x", (0, 1))

        assert quantiles.fold(NOTHING, sketch(quantiles, [None, math.nan], "double"))[""] is None
        odd = sketch(quantiles, [math.inf, -math.inf, math.nan, None], "double")
        assert quantiles.fold(NOTHING, odd)[""] == {"0.0": "-Infinity", "1.0": "Infinity"}


class TestTopK:
    def counts(self, spark_says, sketch):
        return {row["item"]: row["count"] for row in spark_says(SPARK_TOP_K, sketch)}

    def test_both_answer_alike(self, sketch, spark_says):
        top_k = TopK("x", k=3)
        left = sketch(top_k, ["é🙂"] * 3 + ["", "", "b"], "string")
        right = sketch(top_k, ["é🙂", "b", "b", "b", "c", None, "a\0b"], "string")

        folded = top_k.fold(top_k.fold(NOTHING, left), right)

        assert [(found["item"], found["count"], found["at_least"]) for found in folded[""]] == [
            ("b", 4, 4),
            ("é🙂", 4, 4),
            ("", 2, 2),
        ]
        assert self.counts(spark_says, folded["sketch"]) == {"b": 4, "é🙂": 4, "": 2, "c": 1}
        assert self.counts(spark_says, right["sketch"]) == {"b": 3, "é🙂": 1, "c": 1}

    def test_nulls_alone_are_nothing(self, sketch):
        assert TopK("x").fold(NOTHING, sketch(TopK("x"), [None, None], "string"))[""] is None

    def test_what_spark_counted_of_nulls_is_left_out(self, spark):
        """Spark keeps their number behind the sketch, where the format knows of nothing."""
        theirs = spark.sql(
            "SELECT approx_top_k_accumulate(x, 1024).sketch FROM VALUES ('a'), (null), (null) t(x)"
        ).first()

        folded = TopK("x").fold({"sketch": theirs[0]}, {"sketch": theirs[0]})

        assert folded[""] == [{"item": "a", "count": 2, "at_least": 2}]

    def test_large_sketches_answer_alike(self, sketch, spark_says):
        top_k = TopK("x", k=10)
        texts = [str(n) for n in range(1, 6_000) for _ in range(6_000 // n)]

        folded = top_k.fold(*(sketch(top_k, texts[part::2], "string") for part in (0, 1)))

        from_spark = spark_says(SPARK_TOP_K, folded["sketch"])
        assert [row["count"] for row in from_spark] == [found["count"] for found in folded[""]]
        error = 3.5 / 2048 * len(texts)
        for found in folded[""]:
            assert found["at_least"] <= 6_000 // int(found["item"]) <= found["count"] <= found["at_least"] + error
