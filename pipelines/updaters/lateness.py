"""Which tuples came late: after the watermark that the batches before had brought."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.context import BatchContext
from pipelines.errors import PipelineError
from pipelines.stream import Stream

LATE = "late"


def timed(stream: Stream, time: str) -> Stream:
    """Return the tuples that have a time, with a column `late`: whether the watermark before this batch was beyond it.

    Tuples without a time are left out (see with_time).
    Raises PipelineError, when the pipeline is checked, where `time` is no timestamp or `late` is there already.
    """

    def mark(context: BatchContext, events: DataFrame) -> DataFrame:
        if LATE in events.columns:
            raise PipelineError(f"the stream has a column {LATE!r} already; rename it in each()")
        late = F.lit(False) if context.late_before is None else F.col(time) < F.lit(context.late_before)
        return with_time(events, time).withColumn(LATE, late)

    return Stream((stream,), mark)


def with_time(events: DataFrame, time: str) -> DataFrame:
    """Return the tuples whose time is in the years 1 to 9999; Python knows no others.

    To have those without a time as dead letters, declare the column NOT NULL at the source.
    Raises PipelineError where `time` is no timestamp.
    """
    found = dict(events.dtypes).get(time, "absent")
    if found != "timestamp":
        raise PipelineError(f"event time {time!r} is {found} in the stream; cast it to a timestamp in each()")
    return events.where(F.year(time).between(1, 9999))
