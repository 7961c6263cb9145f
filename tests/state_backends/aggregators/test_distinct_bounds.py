"""An estimate of distinct values says between which numbers the true one is."""

import datasketches as ds
import pytest

from tidegauge.state_backends.aggregators import DistinctCount, DistinctSet


def counted(aggregator, values: range) -> int:
    """Return the number that a state has after two batches of these values."""
    is_count = isinstance(aggregator, DistinctCount)
    sketch = (
        ds.hll_sketch(aggregator.lg_k, ds.tgt_hll_type.HLL_8) if is_count else ds.update_theta_sketch(aggregator.lg_k)
    )
    for value in values:
        sketch.update(f"value {value}")
    stored = {"sketch": bytes(sketch.serialize_compact() if is_count else sketch.compact().serialize())}
    return aggregator.finish(aggregator.fold(stored, stored))


@pytest.mark.parametrize("aggregator", [DistinctCount("x", 10), DistinctSet("x", 10)], ids=["count", "set"])
class TestBounds:
    def test_few_values_are_counted_exactly(self, aggregator):
        assert counted(aggregator, range(64)) == 64
        assert aggregator.bounds(64) == (64, 64)

    def test_19_of_20_estimates_have_the_true_number_within_their_bounds(self, aggregator):
        values = [range(20_000 * n, 20_000 * n + 5_000) for n in range(40)]

        bounds = [aggregator.bounds(counted(aggregator, each)) for each in values]

        assert sum(low <= 5_000 <= high for low, high in bounds) >= 36
        assert all(high - low < 800 for low, high in bounds)
