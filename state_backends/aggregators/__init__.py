"""What a measure computes: one class each, and the list by which the catalog finds them again."""

from state_backends.aggregators.count import Count
from state_backends.aggregators.extreme import Max, Min
from state_backends.aggregators.total import Mean, Sum

__all__ = ["AGGREGATORS", "Count", "Max", "Mean", "Min", "Sum"]

AGGREGATORS = {"count": Count, "sum": Sum, "min": Min, "max": Max, "mean": Mean}
