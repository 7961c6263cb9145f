"""How aggregators over one column name it in Spark SQL, and which number types they store."""

from typing import LiteralString

from state_backends.errors import SpecError

NUMBER_TYPES: dict[str, LiteralString] = {
    "bigint": "bigint",
    "double precision": "double precision",
    "numeric": "numeric",
}
SPARK_TYPES = {"bigint": "bigint", "double precision": "double", "numeric": "decimal(38,9)"}


def quoted(column: str) -> str:
    """Return the column as a Spark SQL name, so that no column name can be read as an expression."""
    return "`" + column.replace("`", "``") + "`"


def number_type(sql_type: str, whose: str) -> LiteralString:
    if sql_type not in NUMBER_TYPES:
        raise SpecError(f"{whose}: type {sql_type!r} is none of {', '.join(NUMBER_TYPES)}")
    return NUMBER_TYPES[sql_type]


def cast(column: str, sql_type: str) -> str:
    return f"cast({quoted(column)} as {SPARK_TYPES[sql_type]})"
