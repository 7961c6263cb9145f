"""Whole tuples as one text, so that an updater can keep and pass on any columns without knowing their types."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

PAYLOAD = "payload"

# Spark's own format would cut times at milliseconds.
OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def packed(events: DataFrame) -> Column:
    """Return all columns of a tuple as JSON text."""
    return F.to_json(F.struct(*(events[name] for name in events.columns)), OPTIONS)


def unpacked(payload: str, like: DataFrame) -> Column:
    """Return the struct of what was packed into a column, with the columns and types of `like`."""
    return F.from_json(F.col(payload), like.schema, OPTIONS)
