"""How a text becomes the columns of an event, and which texts do not: JSON objects and lines of CSV.

A text that is bad keeps its place among the rows, in the column BAD_LINE, which is null beside every good one. Files
and messages share this.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipelines.sources.columns import nullable, required

BAD_LINE, CORRUPT = "_bad_line", "_corrupt"
# What the rows hold beside an event's own columns.
RESERVED = (BAD_LINE, CORRUPT)


def json_events(texts: DataFrame, schema: StructType, beside: Sequence[str]) -> DataFrame:
    """Read the column `value` as one JSON object each.

    beside: columns of `texts` to keep. Fields that the schema does not name are left out, absent ones are null.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}
    row = F.from_json("value", nullable(schema).add(CORRUPT, "string"), options)
    return _events(texts, row, ~_is_one_json_value(), schema, beside)


def csv_events(
    texts: DataFrame, schema: StructType, delimiter: str, beside: Sequence[str], refused: Column | None = None
) -> DataFrame:
    """Read the column `value` as one line of CSV each: as many fields as the schema has, in its order.

    refused: which lines are bad whatever they hold.
    """
    bad = ~_closes_its_quotes() if refused is None else refused | ~_closes_its_quotes()
    return _events(texts, csv_row("value", schema, delimiter), bad, schema, beside)


def csv_row(line: str, schema: StructType, delimiter: str) -> Column:
    """Return the struct that a column of CSV lines holds, with CORRUPT filled in where the line does not fit."""
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": CORRUPT,
        "sep": delimiter,
        "escape": '"',  # a quote within quotes is doubled (RFC 4180); Spark's own choice is a backslash
    }
    return F.from_csv(line, _ddl(nullable(schema).add(CORRUPT, "string")), options)


def _events(texts: DataFrame, row: Column, bad: Column, schema: StructType, beside: Sequence[str]) -> DataFrame:
    unfit = F.col(f"row.{CORRUPT}").isNotNull() | ~F.is_valid_utf8("value")
    bad = reduce(or_, [F.col("row")[name].isNull() for name in required(schema)], bad | unfit)
    return (
        texts.select("value", *beside, row.alias("row"))
        .select("row.*", F.when(bad, F.make_valid_utf8("value")).alias(BAD_LINE), *beside)
        .drop(CORRUPT)
    )


def _is_one_json_value() -> Column:
    # Spark's parser stops at the end of the first value, so `{..}{..}` would lose the second one in silence.
    wrapped = F.concat(F.lit("["), F.col("value"), F.lit("]"))
    return F.coalesce(F.json_array_length(wrapped) == 1, F.lit(False))


def _closes_its_quotes() -> Column:
    # Spark takes a last field that opens a quote as it is, so a record that goes on in the next line would count.
    return F.length(F.regexp_replace("value", '[^"]', "")) % 2 == 0


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in schema)
