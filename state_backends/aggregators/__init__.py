"""Aggregators: one class for each thing that a measure can compute, and the registry in which the catalog finds it."""

from tidegauge.state_backends.aggregators.basic import Max, Min, StdDev, Variance
from tidegauge.state_backends.aggregators.by_time import First, Last, Latest
from tidegauge.state_backends.aggregators.distinct import DistinctCount, DistinctSet
from tidegauge.state_backends.aggregators.quantiles import Quantiles
from tidegauge.state_backends.aggregators.reducer import Reducer
from tidegauge.state_backends.aggregators.retractable import RetractableMax, RetractableMin
from tidegauge.state_backends.aggregators.top_k import TopK
from tidegauge.state_backends.aggregators.total import Count, Mean, RowCount, Sum
from tidegauge.state_backends.protocols import Aggregator

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
    "RetractableMax",
    "RetractableMin",
    "RowCount",
    "StdDev",
    "Sum",
    "TopK",
    "Variance",
]

# Never rename one, because the names are stored in the catalog. For an aggregator of your own, add a line.
AGGREGATORS: dict[str, type[Aggregator]] = {
    "count": Count,
    "row_count": RowCount,
    "sum": Sum,
    "min": Min,
    "max": Max,
    "retractable_min": RetractableMin,
    "retractable_max": RetractableMax,
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
