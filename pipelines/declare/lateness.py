"""Lateness: which tuples come too late, when windows close, and the dead letters of tuples that are left out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidegauge.pipelines.declare.context import BatchContext, Step
from tidegauge.pipelines.declare.windows import Window
from tidegauge.pipelines.errors import PipelineError
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.spec.state_spec import StateSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The column that holds the start of an event's window, in states whose windows close.
WINDOW = "_window"


@dataclass(frozen=True)
class Cutoff:
    """Which tuples come too late, and are left out.

    is_late: the condition on a frame; None if nothing can be late yet. why: the reason that their dead letters give.
    """

    is_late: Callable[[BatchContext], "Column | None"]
    why: str


@dataclass(frozen=True)
class Closing:
    """When a state's windows close: `lateness` after their end. column: the key column that holds a window's start."""

    column: str
    window: Window
    lateness: timedelta

    @classmethod
    def of(cls, spec: StateSpec, keys: Mapping[str, str], lateness: timedelta) -> "Closing":
        """Return when the window among the keys closes. Raises PipelineError unless exactly one key is a window."""
        windows = {name: key for name, key in keys.items() if isinstance(key, Window)}
        if len(windows) != 1 or spec.key[next(iter(windows))] != "timestamptz":
            raise PipelineError(
                f"state {spec.name!r}: allowed_lateness closes windows, but {len(windows)} of its keys are windows; "
                "give it exactly one, such as start=tumbling(..), of type timestamptz"
            )
        [(column, window)] = windows.items()
        return cls(column, window, lateness)

    def open_from(self, watermark: datetime | None) -> datetime | None:
        """Return the start of the first window that a watermark leaves open; None if there is no watermark yet."""
        return None if watermark is None else self.window.open_from(watermark - self.lateness)

    def closes_at(self, start: datetime) -> datetime:
        """Return the watermark that closes the window with this start."""
        return self.window.end(start) + self.lateness

    @property
    def cutoff(self) -> Cutoff:
        def is_late(context: BatchContext) -> "Column | None":
            return _earlier(WINDOW, self.open_from(context.late_before))

        return Cutoff(is_late, f"its window has closed, {self.lateness} after its end")


def before_watermark(column: str, allowed: timedelta = timedelta()) -> Cutoff:
    """Return the cutoff of the tuples whose time is more than `allowed` before the watermark."""

    def is_late(context: BatchContext) -> "Column | None":
        return _earlier(column, context.late_before and context.late_before - allowed)

    return Cutoff(is_late, f"{column} is more than {allowed} before the watermark")


def _earlier(column: str, time: datetime | None) -> "Column | None":
    from pyspark.sql import functions as F

    return None if time is None else F.col(column) < F.lit(time)


def in_time(cutoff: Cutoff) -> Step:
    """Return the step that leaves out what is too late. A tuple without a time is never late."""

    def keep(context: BatchContext, events: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        late = cutoff.is_late(context)
        return events if late is None else events.where(~F.coalesce(late, F.lit(False)))

    return keep


def late_ones(cutoff: Cutoff) -> Step:
    """Return the step that keeps only what is too late."""

    def late(context: BatchContext, events: "DataFrame") -> "DataFrame":
        condition = cutoff.is_late(context)
        return events.where("false") if condition is None else events.where(condition)

    return late


def late_letters(cutoff: Cutoff, late: "DataFrame") -> Iterator[DeadLetter]:
    """Yield a dead letter for each tuple that a cutoff leaves out: its columns as JSON, and why it is too late."""
    from tidegauge.pipelines.spark.packing import packed
    from tidegauge.pipelines.spark.rows import read_rows

    for (line,) in read_rows(late.select(packed(late))):
        yield DeadLetter("late", line, f"late: {cutoff.why}")
