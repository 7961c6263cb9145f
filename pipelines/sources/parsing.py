"""Parses texts into the columns of an event. Files and message sources share it.

Spark parses JSON objects and CSV lines. A bad text stays in its row, in the column BAD_LINE, which is null in every
good row. Spark does not say why a text is bad or where it is in its file; see bad_lines.py.
Single values (fields of a Redis entry, columns from PostgreSQL's logical decoding) are each cast to the type of their
column, and `why_unreadable` names the first one that does not fit.
"""

from collections.abc import Callable, Container, Sequence
from functools import partial, reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType, StructField, StructType

from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.bad_lines import SHOWN_CHARACTERS
from tidegauge.pipelines.sources.exact import csv_misfit, is_plain_time, json_misfit, plain_times, text_misfit
from tidegauge.pipelines.sources.schemas import nullable, required

# The text of a bad row, and a struct of its bytes as they are and of where it came from; both null in every good row.
BAD_LINE, BAD_ROW, CORRUPT = "_bad_line", "_bad_row", "_corrupt"
# Columns of the rows beside an event's own.
RESERVED = (BAD_LINE, BAD_ROW, CORRUPT)

# A column of text, and its field, to the column of values.
Reading = Callable[[Column, StructField], Column]


def json_events(texts: DataFrame, schema: StructType, keep: Sequence[str], place: Sequence[str] = ()) -> DataFrame:
    """Parse the column `value`, which holds one JSON object per row.

    keep: columns of `texts` to keep. place: those to keep of bad rows only, in BAD_ROW, beside the field `bytes`; there
    is no BAD_ROW without any. Fields that the schema does not name are ignored, absent ones are null.
    """
    bad = ~is_one_json_value(F.col("value"))
    return _events(texts, partial(json_row, "value"), bad, schema, keep, place, partial(json_misfit, "value"))


def csv_events(
    texts: DataFrame,
    schema: StructType,
    delimiter: str,
    keep: Sequence[str],
    place: Sequence[str] = (),
    refused: Column | None = None,
) -> DataFrame:
    """Parse the column `value`, which holds one CSV line per row, with the fields of the schema in its order.

    keep, place: as for json_events. refused: which lines are bad regardless of their content.
    """
    bad = ~_closes_its_quotes() if refused is None else refused | ~_closes_its_quotes()
    read = partial(csv_row, "value", delimiter=delimiter)
    return _events(texts, read, bad, schema, keep, place, partial(csv_misfit, "value", read(_texts(schema))))


def json_row(line: str, schema: StructType) -> Column:
    """Return the struct that a column of JSON objects holds, with CORRUPT filled in if the text does not fit."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
    return F.from_json(line, nullable(schema).add(CORRUPT, "string"), options)


def csv_row(line: str, schema: StructType, delimiter: str) -> Column:
    """Return the struct that a column of CSV lines holds, with CORRUPT filled in if the line does not fit."""
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "sep": delimiter,
        "escape": '"',  # because a quote within quotes is doubled (RFC 4180); Spark's default is a backslash
    }
    return F.from_csv(line, _ddl(nullable(schema).add(CORRUPT, "string")), options)


def _events(
    texts: DataFrame,
    read: Callable[[StructType], Column],
    bad: Column,
    schema: StructType,
    keep: Sequence[str],
    place: Sequence[str],
    misfit: Callable[[Column, StructType, Column], Column | None],
) -> DataFrame:
    """Parse with times as texts, because casting plain ones is cheaper; if one is not plain, parse again with types."""
    row, again, times = F.col("row"), F.col("again"), plain_times(schema)
    texts_of_times = {name: row.getField(name) for name in times}
    is_plain = reduce(and_, [is_plain_time(text, times[name]) for name, text in texts_of_times.items()], F.lit(True))
    # Columns of their own beside `again`, because Spark then casts each time once for both.
    casts = {name: (f"time_{n}", text.try_cast(times[name])) for n, (name, text) in enumerate(texts_of_times.items())}
    values = {field.name: row.getField(field.name) for field in schema} | {
        name: F.when(again.isNull(), F.col(column)).otherwise(again.getField(name))
        for name, (column, _) in casts.items()
    }
    bad = bad | row.getField(CORRUPT).isNotNull() | again.getField(CORRUPT).isNotNull() | ~F.is_valid_utf8("value")
    bad = reduce(or_, [values[name].isNull() for name in required(schema)], bad)
    changed = misfit(row, schema, again.isNotNull())
    # Without a value a row is not bad, because a message may have none; a line always has one.
    bad = F.col("value").isNotNull() & (bad if changed is None else bad | changed)
    # Only of bad rows, because a path is longer than most events, and rows are copied and cached. All in one column,
    # because Spark plans the condition again for each.
    raw = F.col("value").cast("binary").alias("bytes")
    every = ["value", *keep, *place]
    return (
        texts.select(*every, read(_texts(schema, times)).alias("row"))
        .select(
            *every,
            "row",
            *(cast.alias(column) for column, cast in casts.values()),
            F.when(~is_plain, read(schema)).alias("again"),
        )
        .select(
            *(value.alias(name) for name, value in values.items()),
            F.when(bad, F.make_valid_utf8("value")).alias(BAD_LINE),
            *([F.when(bad, F.struct(raw, *place)).alias(BAD_ROW)] if place else []),
            *keep,
        )
    )


def is_one_json_value(line: Column) -> Column:
    # Checked because Spark's parser stops after the first value, so the second one of `{..}{..}` would be lost. Nearly
    # every line ends at its only closing brace, which its bytes show without parsing it again.
    rest = F.substring(line.cast("binary"), 1, F.octet_length(line) - 1).cast("string")
    is_flat = line.startswith("{") & line.endswith("}") & ~rest.contains("}")
    wrapped = F.concat(F.lit("["), line, F.lit("]"))
    return F.coalesce(is_flat | (F.json_array_length(wrapped) == 1), F.lit(False))


def _closes_its_quotes() -> Column:
    # Checked because Spark accepts an open quote in the last field, and a record that continues on the next line would
    # count.
    return F.length(F.regexp_replace("value", '[^"]', "")) % 2 == 0


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in schema)


def _texts(schema: StructType, names: Container[str] | None = None) -> StructType:
    """Return the schema with every column as a string, or only those of `names`."""
    kinds = [
        (field.name, field.dataType if names is not None and field.name not in names else StringType())
        for field in schema
    ]
    return StructType([StructField(name, kind, True) for name, kind in kinds])


def by_cast(text: Column, field: StructField) -> Column:
    return text.try_cast(field.dataType)


def check_types(source: str, schema: StructType, reserved: tuple[str, ...]) -> None:
    """Raise PipelineError if a column's type cannot be read from text, or its name is one that the source adds."""
    for field in schema:
        if field.name in reserved:
            raise PipelineError(f"{source}: column {field.name!r} is added by the source; give the field another name")
        if not isinstance(field.dataType, AtomicType):
            raise PipelineError(
                f"{source}: column {field.name!r} cannot be {field.dataType.simpleString()}; "
                "declare it as string, and parse it in each()"
            )


def why_unreadable(schema: StructType, text: Callable[[str], Column], read: Reading = by_cast) -> Column:
    """Return the column of reasons why a row is bad, each naming the first bad column; null for a good row."""
    reasons = [_reason(field, text(field.name), read) for field in schema]
    return reduce(lambda first, other: F.coalesce(first, other), reasons, F.lit(None).cast("string"))


def _reason(field: StructField, text: Column, read: Reading) -> Column:
    expected = F.lit(f"{field.name}: expected {field.dataType.simpleString()}, got ")
    changed = text_misfit(text, field.dataType)
    unread = read(text, field).isNull() if changed is None else read(text, field).isNull() | changed
    misfit = F.when(text.isNotNull() & unread, F.concat(expected, F.substring(text, 1, SHOWN_CHARACTERS)))
    if field.nullable:
        return misfit
    return F.when(text.isNull(), F.lit(f"{field.name}: required, and absent or null")).otherwise(misfit)
