"""Misfits: events that a state cannot take because a measure would change one of their values.

Examples are a number with more places than the measure keeps, a number out of range, and a NaN in a total. Such an
event becomes a dead letter and is left out of the whole state, so that its measures stay comparable. A column that
already has the measure's type is only checked for NaN. Misfits are grouped separately by the same aggregation, so that
good events pay next to nothing; the events themselves are looked up only if a batch has misfits.
"""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, IntegralType, LongType, StringType

from tidegauge.pipelines.declare.stream import PersistentAggregate
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.exact import text_misfit
from tidegauge.pipelines.spark.rows import read_rows
from tidegauge.pipelines.spark.session import data_type, spark_type
from tidegauge.state_backends.aggregators.column import FITS, MEASURE_TYPES, quoted
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.protocols import Aggregator, Input

MISFITS = "_misfits"  # the column of a group that counts misfits; null in a group of good events

EXACT_NUMBERS = (IntegralType, DecimalType)


class Check(NamedTuple):
    measure: str
    reads: Input
    fails: Column


def misfit(aggregate: PersistentAggregate, events: DataFrame) -> Column | None:
    """Return the condition under which an event is a misfit; None if no event can be one."""
    checks = _checks(aggregate, events)
    return F.coalesce(reduce(or_, (check.fails for check in checks)), F.lit(False)) if checks else None


def misfit_letters(aggregate: PersistentAggregate, events: DataFrame) -> Iterator[DeadLetter]:
    """Yield each misfit with its key and the values that the measures read, and the first reason."""
    checks = _checks(aggregate, events)
    keys = [F.expr(aggregate.keys[name]).alias(name) for name in aggregate.spec.key]
    read = dict.fromkeys(check.reads.column for check in checks if check.reads.column not in aggregate.spec.key)
    reason = F.coalesce(*(F.when(check.fails, _reason(check)) for check in checks))
    line = F.to_json(F.struct(*keys, *(F.col(quoted(name)) for name in read)))
    for text, why in read_rows(events.select(line, reason.alias("reason")).where("reason is not null")):
        yield DeadLetter(f"state {aggregate.name}", text, why)


def _reason(check: Check) -> Column:
    value = F.coalesce(F.substring(F.col(quoted(check.reads.column)).cast("string"), 1, 60), F.lit("null"))
    return F.concat(F.lit(f"measure {check.measure}: {check.reads.column} does not fit {check.reads.type}: "), value)


def _checks(aggregate: PersistentAggregate, events: DataFrame) -> list[Check]:
    checks = []
    for measure, aggregator in aggregate.spec.measures.items():
        for reads in getattr(aggregator, "inputs", ()):
            given = events.select(quoted(reads.column)).schema[0].dataType
            _check_type(f"state {aggregate.name!r}: measure {measure!r}", aggregator, reads, given)
            fails = _misfit(F.col(quoted(reads.column)), given, reads)
            if fails is not None:
                checks.append(Check(measure, reads, fails))
    return checks


def _check_type(at: str, aggregator: Aggregator, reads: Input, given: DataType) -> None:
    """Raise PipelineError if a measure without a type reads a column whose values its default type may not hold."""
    if reads.is_given or _is_held(aggregator, reads, given):
        return
    is_total = bool(getattr(aggregator, "totals", ()))
    at = f"{at} has no type, and column {reads.column!r} is"
    if is_total and isinstance(given, FloatType | DoubleType):
        raise PipelineError(
            f"{at} a {given.simpleString()}, whose totals are rounded; declare the column as a decimal, which is "
            f"exact, or ask for doubles: {_call(aggregator, 'double precision')}"
        )
    if is_total and isinstance(given, DecimalType):
        raise PipelineError(
            f"{at} {given.simpleString()}, which has more digits than {reads.type} keeps; give the digits: "
            f"{_call(aggregator, f'numeric(38, {given.scale})')}"
        )
    if is_total:
        raise PipelineError(f"{at} {given.simpleString()}; declare it as a number, or convert it in each()")
    fitting = _fitting_type(given)
    way_out = f"give it one: {_call(aggregator, fitting)}" if fitting else "convert it in each() and give a type"
    raise PipelineError(f"{at} {given.simpleString()}, whose values {reads.type} may not hold; {way_out}")


def _is_held(aggregator: Aggregator, reads: Input, given: DataType) -> bool:
    """Return whether the default type of a measure holds every value of a column."""
    wanted = data_type(spark_type(reads.type))
    is_rounded = isinstance(wanted, DoubleType) and isinstance(given, LongType | DecimalType)
    if is_rounded and not getattr(aggregator, "totals", ()):
        return False  # because readers must get a value back as it was; a mean is rounded in any case
    return given == wanted or _is_wider(given, wanted)


def _fitting_type(given: DataType) -> str | None:
    """Return the type of a measure that keeps the values of a column as they are; None if there is none."""
    if isinstance(given, DecimalType):
        return f"numeric({given.precision}, {given.scale})"
    return next((kind.name for kind in MEASURE_TYPES if kind.spark == given.simpleString()), None)


def _call(aggregator: Aggregator, sql_type: str) -> str:
    """Return the declaration of a measure with a type, such as `Last('plan', by='at', type='text')`."""
    column, *others = (aggregator.arguments() | {"type": sql_type}).items()
    return f"{type(aggregator).__name__}({column[1]!r}, {', '.join(f'{name}={value!r}' for name, value in others)})"


def _misfit(value: Column, given: DataType, reads: Input) -> Column | None:
    wanted = data_type(spark_type(reads.type))
    read = value if given == wanted else value.try_cast(wanted)
    faults = [*_changed(value, read, given, wanted)]
    if reads.type in FITS:
        faults.append(~F.expr(FITS[reads.type].format(f"try_cast({quoted(reads.column)} as {wanted.simpleString()})")))
    if reads.largest is not None and isinstance(wanted, DoubleType) and not isinstance(given, EXACT_NUMBERS):
        faults.append(F.abs(read) > F.lit(reads.largest))  # also true for NaN, the largest double
    return value.isNotNull() & reduce(or_, (F.coalesce(fault, F.lit(False)) for fault in faults)) if faults else None


def _changed(value: Column, read: Column, given: DataType, wanted: DataType) -> Iterator[Column]:
    """Yield the conditions under which a cast changes the value. A number may become a double, anything a text."""
    if given == wanted or isinstance(wanted, StringType) or _is_wider(given, wanted):
        return
    yield read.isNull()
    if isinstance(given, StringType):
        changed = text_misfit(value, wanted)
        if changed is not None:
            yield changed
    elif isinstance(wanted, EXACT_NUMBERS):
        yield ~read.try_cast(given).eqNullSafe(value)


def _is_wider(given: DataType, wanted: DataType) -> bool:
    if isinstance(wanted, DoubleType):
        return isinstance(given, FloatType | IntegralType | DecimalType)
    if isinstance(wanted, DecimalType) and isinstance(given, DecimalType):
        whole, places = given.precision - given.scale, given.scale
        return places <= wanted.scale and whole <= wanted.precision - wanted.scale
    if isinstance(wanted, DecimalType) and isinstance(given, IntegralType):
        return wanted.precision - wanted.scale >= 19  # digits of the largest bigint
    return isinstance(wanted, IntegralType) and isinstance(given, IntegralType)
