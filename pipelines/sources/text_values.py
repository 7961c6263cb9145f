"""Values that arrive as text become columns of the schema's types, and what does not fit is told.

Redis fields are text, and so is what PostgreSQL's logical decoding sends.
"""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StructField, StructType

from pipelines.errors import PipelineError

SHOWN_CHARACTERS = 60

# A column of text, and the column of values that is made of it.
Reading = Callable[[Column, StructField], Column]


def by_cast(text: Column, field: StructField) -> Column:
    return text.try_cast(field.dataType)


def check_types(source: str, schema: StructType, reserved: tuple[str, ...]) -> None:
    """Raise PipelineError where a column has no type that text can be read as, or a name the source uses itself."""
    for field in schema:
        if field.name in reserved:
            raise PipelineError(f"{source}: column {field.name!r} is the source's own; give the field another name")
        if not isinstance(field.dataType, AtomicType):
            raise PipelineError(
                f"{source}: column {field.name!r} cannot be {field.dataType.simpleString()}; "
                "declare it as string, and take it apart in each()"
            )


def why_unreadable(schema: StructType, text: Callable[[str], Column], read: Reading = by_cast) -> Column:
    """Return the column that says what is wrong with a row, naming the first such column; null where nothing is."""
    reasons = [_reason(field, text(field.name), read) for field in schema]
    return reduce(lambda first, other: F.coalesce(first, other), reasons, F.lit(None).cast("string"))


def _reason(field: StructField, text: Column, read: Reading) -> Column:
    expected = F.lit(f"{field.name}: expected {field.dataType.simpleString()}, got ")
    misfit = F.when(
        text.isNotNull() & read(text, field).isNull(), F.concat(expected, F.substring(text, 1, SHOWN_CHARACTERS))
    )
    if field.nullable:
        return misfit
    return F.when(text.isNull(), F.lit(f"{field.name}: required, and absent or null")).otherwise(misfit)
