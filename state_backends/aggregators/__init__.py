"""What a measure computes: one class each, and the list by which the catalog finds them again."""

from state_backends.aggregators.basic import Count, Max, Mean, Min, StdDev, Sum, Variance
from state_backends.aggregators.by_time import First, Last, Latest
from state_backends.aggregators.reducer import Reducer
from state_backends.aggregators.sketches import DistinctCount, DistinctSet, Quantiles, TopK
from state_backends.protocols import Aggregator

__all__ = [
    "AGGREGATORS",
    "Count",
    "DistinctCount",
    "DistinctSet",
    "First",
    "Last",
    "Latest",
    "Max",
    "Mean",
    "Min",
    "Quantiles",
    "Reducer",
    "StdDev",
    "Sum",
    "TopK",
    "Variance",
]

# A name stands in stored definitions: keep it. A measure of your own is one line more.
AGGREGATORS: dict[str, type[Aggregator]] = {
    "count": Count,
    "sum": Sum,
    "min": Min,
    "max": Max,
    "mean": Mean,
    "variance": Variance,
    "std_dev": StdDev,
    "first": First,
    "last": Last,
    "latest": Latest,
    "distinct_count": DistinctCount,
    "distinct_set": DistinctSet,
    "quantiles": Quantiles,
    "top_k": TopK,
}
