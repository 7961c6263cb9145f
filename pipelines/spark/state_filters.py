"""The data source "tidegauge" with filter pushdown, which Spark supports since 4.1 and does on request."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
)
from pyspark.sql.types import StructType

from tidegauge.pipelines.spark.state_source import StateRead, StateRows, TidegaugeDataSource
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.reader.bounds import KeyRange, check_range


class PushingDataSource(TidegaugeDataSource):
    """The data source for sessions whose setting makes Spark pass filters to data sources."""

    def reader(self, schema: StructType) -> "StateRows":
        return FilteredRows(super().reader(schema).read_, schema)


class FilteredRows(StateRows):
    """Narrows the range of keys by filters on the first key columns. Spark applies every filter again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        self.read_ = narrowed(self.read_, filters)
        return filters


def narrowed(read: StateRead, filters: Sequence[Filter]) -> StateRead:
    """Return the read, narrowed by the filters: equality on the first key columns, and bounds on the next column.

    If the options set bounds, those are used unchanged.
    """
    if read.bounds != KeyRange():
        return read
    prefix: list[Any] = []
    for name, kind in read.spec.key.items():
        value = _operand(filters, name, EqualTo, EqualNullSafe)
        if value is None:
            # A uuid cannot be bounded, because Spark has it as text, and text with capital letters sorts differently.
            return read if kind == "uuid" and not prefix else _bounded(read, prefix, filters, name, kind)
        prefix.append(value)
    return _replaced(read, prefix, None, None)


def _bounded(read: StateRead, prefix: list[Any], filters: Sequence[Filter], name: str, kind: str) -> StateRead:
    # A strict bound may be read as an inclusive one, because Spark applies the filter again and drops its value.
    start = None if kind == "uuid" else _operand(filters, name, GreaterThanOrEqual, GreaterThan)
    stop = None if kind == "uuid" else _operand(filters, name, LessThan)
    return _replaced(
        read, prefix, None if start is None else [*prefix, start], None if stop is None else [*prefix, stop]
    )


def _replaced(read: StateRead, prefix: list[Any], start: list[Any] | None, stop: list[Any] | None) -> StateRead:
    try:
        return replace(read, bounds=check_range(read.spec, prefix, start, stop))
    except KeyShapeError:
        return read  # the value cannot be part of a key, so Spark's own filter decides


def _operand(filters: Sequence[Filter], column: str, *kinds: type[Any]) -> Any:
    found = (each.value for each in filters if isinstance(each, kinds) and each.attribute == (column,))
    return next(found, None)
