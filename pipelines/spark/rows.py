"""Rows of a frame, read in the driver."""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Row


def read_rows(frame: DataFrame) -> Iterator[Row]:
    """Yield the rows, a partition at a time.

    Not by `DataFrame.toLocalIterator`: its jobs begin after the query that they belong to has ended, and Spark 4.3
    never forgets such a job and its plan (DAGScheduler.activeQueryToJobs). Some hundred batches with dead letters
    filled 1 GB.
    """
    yield from frame.rdd.toLocalIterator()
