"""Observed: figures of a frame that the job which reads it first computes on the way, so that they cost no job."""

from functools import cached_property

from pyspark.sql import Column, DataFrame, Observation, SparkSession


class Observed:
    """A frame, and figures of all of its rows. `frame` must be read in the place of the one that was given."""

    def __init__(self, frame: DataFrame, *figures: Column) -> None:
        self._unseen = frame
        self._columns = figures
        self._observation = Observation()
        self.frame = frame.observe(self._observation, *figures)

    @cached_property
    def figures(self) -> dict[str, int]:
        """The figures by name. Ask once the frame has been read; else this reads it."""
        if _was_seen(self._observation, self._unseen.sparkSession):
            return self._observation.get
        # Nothing read the rows, behind a condition that is never true for example: the figures would never come.
        [row] = self._unseen.agg(*self._columns).collect()
        return row.asDict()


def _was_seen(observation: Observation, spark: SparkSession) -> bool:
    """Return whether a job has counted the rows. Spark reports after the job's end, and offers no call for it."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    seen = observation._jo
    return bool(seen and seen.future().isCompleted() and seen.get().size())
