"""The columns of the explorer: one for each measure, and for quantiles one for each of their probabilities.

Distinct counts are estimates, so they are shown with bounds, which contain the true count in 95 of 100 cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from tidegauge.state_backends import DistinctCount, DistinctSet, Quantiles, StateSpec
from tidegauge.state_backends.spec.types import type_of
from tidegauge.webapp.console.dashboard.templatetags.dashboard import cell, measured
from tidegauge.webapp.core.writing import number


@dataclass(frozen=True)
class Column:
    """measure: its name, or `value` for a state of JSON values. member: the member of its value; empty for all of it.

    estimate: the aggregator, if its numbers are estimates. is_number: whether it can be compared and drawn.
    """

    measure: str
    label: str
    member: str = ""
    estimate: DistinctCount | DistinctSet | None = None
    is_number: bool = False

    def of(self, value: Any) -> Any:
        """Return the part of an entry's value that this column shows; None if there is none."""
        if not isinstance(value, dict):
            return value
        found = value.get(self.measure)
        if not self.member:
            return found
        return found.get(self.member) if isinstance(found, dict) else None

    def shown(self, value: Any) -> str | SafeString:
        """Return the text of a cell."""
        if self.estimate is None or not isinstance(value, int):
            return cell(value) if self.is_number else measured(value)
        low, high = self.estimate.bounds(value)
        if low == high:
            return number(value)
        return format_html("≈ {} <small>{}–{}</small>", number(value), number(low), number(high))  # noqa: RUF001


def columns(spec: StateSpec, measures: Sequence[str]) -> list[Column]:
    """measures: their names; `value` for a state of JSON values."""
    return [column for measure in measures for column in _of_measure(spec, measure)]


def _of_measure(spec: StateSpec, measure: str) -> list[Column]:
    aggregator = spec.measures.get(measure)
    if aggregator is None:
        return [Column(measure, measure)]
    if isinstance(aggregator, Quantiles):
        return [
            Column(measure, f"{measure} p{100 * share:.6g}", str(share), is_number=True)
            for share in aggregator.probabilities
        ]
    estimate = aggregator if isinstance(aggregator, DistinctCount | DistinctSet) else None
    return [Column(measure, measure, "", estimate, type_of(aggregator.result_type).is_number)]
