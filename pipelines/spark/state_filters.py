"""The data source "tidegauge" where Spark hands filters to it, which Spark can since 4.1 and does on request."""

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
    """The same where Spark hands filters to sources, which it does if its setting says so."""

    def reader(self, schema: StructType) -> "StateRows":
        return FilteredRows(super().reader(schema).read_, schema)


class FilteredRows(StateRows):
    """Narrows the range of keys by filters on the first key columns. Spark applies every filter once more."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        self.read_ = narrowed(self.read_, filters)
        return filters


def narrowed(read: StateRead, filters: Sequence[Filter]) -> StateRead:
    """Return a read of no more keys than the filters need: equal in the first key columns, and bounds on the next one.

    Bounds that the options set stay as they are.
    """
    if read.bounds != KeyRange():
        return read
    prefix: list[Any] = []
    for name, kind in read.spec.key.items():
        value = _operand(filters, name, EqualTo, EqualNullSafe)
        if value is None:
            # Spark has a uuid as text, whose order is another one in capital letters.
            return read if kind == "uuid" and not prefix else _bounded(read, prefix, filters, name, kind)
        prefix.append(value)
    return _replaced(read, prefix, None, None)


def _bounded(read: StateRead, prefix: list[Any], filters: Sequence[Filter], name: str, kind: str) -> StateRead:
    # With its own value in the range, a bound that leaves it out is met by Spark.
    start = None if kind == "uuid" else _operand(filters, name, GreaterThanOrEqual, GreaterThan)
    stop = None if kind == "uuid" else _operand(filters, name, LessThan)
    return _replaced(
        read, prefix, None if start is None else [*prefix, start], None if stop is None else [*prefix, stop]
    )


def _replaced(read: StateRead, prefix: list[Any], start: list[Any] | None, stop: list[Any] | None) -> StateRead:
    try:
        return replace(read, bounds=check_range(read.spec, prefix, start, stop))
    except KeyShapeError:
        return read  # Spark compares what no key can be


def _operand(filters: Sequence[Filter], column: str, *kinds: type[Any]) -> Any:
    found = (each.value for each in filters if isinstance(each, kinds) and each.attribute == (column,))
    return next(found, None)
