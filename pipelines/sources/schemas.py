"""Schemas that users declare for the events of a source."""

from collections.abc import Iterable

from pyspark.errors import ParseException
from pyspark.sql.types import StructField, StructType

from tidegauge.pipelines.errors import PipelineError


def declared(schema: str | StructType, where: str, reserved: Iterable[str] = ()) -> StructType:
    """Return a schema given as Spark DDL or as a StructType.

    where: the source, for the error. reserved: names that the source needs for itself.
    Raises PipelineError if it is not a schema, or names no column, one twice, or a reserved one.
    """
    columns = _from_ddl(schema, where)
    names = [name.casefold() for name in columns.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    taken = sorted({name.casefold() for name in reserved} & set(names))
    if not names or twice or taken:
        fault = "names no columns"
        if twice:
            fault = f"names {twice[0]!r} twice"
        elif taken:
            fault = f"names {taken[0]!r}, which the source needs for itself; rename the column"
        raise PipelineError(f"source {where}: schema {fault}")
    return columns


def _from_ddl(schema: str | StructType, where: str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    try:
        parsed = StructType.fromDDL(schema)
    except ParseException as error:
        raise PipelineError(f"source {where}: schema {schema!r} is not Spark DDL: {error}") from error
    if not isinstance(parsed, StructType):
        raise PipelineError(f"source {where}: schema {schema!r} names no columns")
    return parsed


def required(schema: StructType) -> list[str]:
    """Return the names of the columns that must hold a value."""
    return [field.name for field in schema if not field.nullable]


def nullable(schema: StructType) -> StructType:
    """Return the same columns, none of them required, because Spark may fill absent required values with defaults."""
    return StructType([StructField(field.name, field.dataType, True) for field in schema])
