"""How the types of keys and measures are called in PostgreSQL, in Spark and in Arrow."""

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from pipelines.errors import PipelineError
from state_backends.types import type_of


def spark_type(sql_type: str) -> str:
    return type_of(sql_type).spark


def struct_type(columns: Mapping[str, str]) -> StructType:
    """Return the schema of columns, name to Spark type. Raises PipelineError naming the column whose type is none."""
    schema = StructType()
    for name, kind in columns.items():
        try:
            schema = schema.add(name, _data_type(kind))
        except Exception as error:
            raise PipelineError(f"column {name!r}: {kind!r} is no Spark type, as `bigint` or `string`") from error
    return schema


@cache
def _data_type(kind: str) -> DataType:
    # Spark's own parser, a call into Java each time.
    return DataType.fromDDL(kind)


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    return as_arrow(struct_type(columns))


def as_arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")
