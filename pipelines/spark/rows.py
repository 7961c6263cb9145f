"""Rows of a frame, read in the driver."""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Row


def read_rows(frame: DataFrame) -> Iterator[Row]:
    """Yield the rows, a partition at a time.

    Not with `DataFrame.toLocalIterator`, because its jobs begin after their query has ended, and Spark 4.3 never frees
    such a job and its plan (DAGScheduler.activeQueryToJobs): a few hundred batches with dead letters filled 1 GB.
    """
    yield from frame.rdd.toLocalIterator()
