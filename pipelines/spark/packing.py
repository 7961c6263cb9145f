"""Packing: converts all columns of a tuple to one JSON text, for states of JSON values and for dead letters."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# Set because Spark's default formats truncate times to milliseconds.
JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def packed(events: DataFrame) -> Column:
    """Return all columns of a tuple as JSON text."""
    return F.to_json(F.struct(*(events[name] for name in events.columns)), JSON_OPTIONS)


def unpacked(payload: str, like: DataFrame) -> Column:
    """Return the struct that was packed into a column, with the columns and types of `like`."""
    return F.from_json(F.col(payload), like.schema, JSON_OPTIONS)
