"""Observed: figures of a frame, computed by the first job that reads it, so that they need no job of their own."""

from functools import cached_property

from pyspark.sql import Column, DataFrame, Observation, SparkSession


class Observed:
    """A frame, and figures of all of its rows. Read `frame` instead of the frame that was passed in."""

    def __init__(self, frame: DataFrame, *figures: Column) -> None:
        self._unseen = frame
        self._columns = figures
        self._observation = Observation()
        self.frame = frame.observe(self._observation, *figures)

    @cached_property
    def figures(self) -> dict[str, int]:
        """The figures by name. Ask after the frame has been read; otherwise this reads it."""
        if _was_seen(self._observation, self._unseen.sparkSession):
            return self._observation.get
        # No job read the rows, for example because a filter is always false, so the figures would never come.
        [row] = self._unseen.agg(*self._columns).collect()
        return row.asDict()


def _was_seen(observation: Observation, spark: SparkSession) -> bool:
    """Return whether a job has computed the figures."""
    # Wait for Spark's listeners, because it reports the figures after the job has ended, and has no public call for it.
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    seen = observation._jo
    return bool(seen and seen.future().isCompleted() and seen.get().size())
