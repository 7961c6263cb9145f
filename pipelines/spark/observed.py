"""Observed: figures of a frame, computed by the first job that reads it, so that they need no job of their own."""

from typing import Any
from uuid import uuid4

from pyspark.serializers import CPickleSerializer
from pyspark.sql import Column, DataFrame, Row

from tidegauge.pipelines.spark.java_classes import java_class


class Observed:
    """A frame, and figures of all of its rows. Read `frame` instead of the frame that was passed in."""

    def __init__(self, frame: DataFrame, *figures: Column) -> None:
        self._unseen = frame
        self._columns = figures
        self._name = uuid4().hex
        self._figures: dict[str, int] | None = None
        self.frame = frame.observe(self._name, *figures)

    @property
    def are_known(self) -> bool:
        return self._figures is not None

    @property
    def figures(self) -> dict[str, int]:
        """The figures by name. Ask after a job has read the frame and was passed to `take`; otherwise this reads it.

        No job reads the rows if, for example, a filter is always false.
        """
        if self._figures is None:
            [row] = self._unseen.agg(*self._columns).collect()
            self._figures = row.asDict()
        return self._figures

    def take(self, job: "JobMetrics") -> None:
        """Take the figures from a job that has just run, if it has read the frame and no job before it has."""
        if self._figures is None and (row := job.observed(self._name)) is not None:
            self._figures = row.asDict()


class JobMetrics:
    """What the job of a frame has observed.

    Read from its plan, because Spark's own class waits for the listeners: they are told after the job has ended, and
    whether they have finished is checked only every 10 ms.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._metrics = frame._jdf.queryExecution().observedMetrics()
        self._jvm: Any = frame.sparkSession._jvm

    def observed(self, name: str) -> Row | None:
        """Return the figures of that name; None if the job has not read their frame."""
        if not self._metrics.contains(name):
            return None
        utils = java_class(self._jvm, "org.apache.spark.sql.api.python.PythonSQLUtils")
        return CPickleSerializer().loads(utils.toPyRow(self._metrics.apply(name)))  # type: ignore
