"""Lateness: the dead letters of tuples that came too late."""

from collections.abc import Iterator

from pyspark.sql import DataFrame

from pipelines.operators.keyed import packed
from pipelines.stream import Stream
from state_backends.dead_letters import DeadLetter


def late_letters(stream: Stream, late: DataFrame) -> Iterator[DeadLetter]:
    """Yield a letter of each tuple that a stream leaves out: its columns as JSON, and why it is too late."""
    assert stream.cutoff is not None
    for (line,) in late.select(packed(late)).toLocalIterator():
        yield DeadLetter("late", line, f"late: {stream.cutoff.why}")
