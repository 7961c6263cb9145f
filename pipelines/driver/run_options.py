"""Run options: how a driver runs its pipeline, checked before Spark is loaded."""

import re
from dataclasses import dataclass
from typing import Any

from tidegauge.pipelines.checkpoint.files import CheckpointPath, checkpoint_folder
from tidegauge.pipelines.errors import PipelineError

INTERVAL = re.compile(r"[1-9]\d{0,8} (millisecond|second|minute|hour|day)s?")
MAX_FAILURES = 8  # in a row, without a batch committed between: about three minutes of trying


@dataclass(frozen=True)
class RunOptions:
    """How a driver runs its pipeline.

    checkpoint: Spark's checkpoint folder of this pipeline: a path, or the URI of a folder in a store, as
    `s3a://bucket/orders`. once: process the available input, then end. one_batch: with `once`, run the batch that the
    checkpoint has planned, and end. interval: the least time from the start of one batch to that of the next, as
    `5 seconds`; batch after batch by default. rebind: accept a checkpoint or source other than the one that fed the
    states. accept_gap: feed a state or measure again although batches were committed without it. max_failures: how many
    failures in a row, without a batch committed between, end the driver; with `once` the first one does.
    Raises PipelineError if max_failures is less than 1, if the interval cannot be read or is combined with `once`, or
    if the checkpoint names no folder.
    """

    checkpoint: CheckpointPath
    once: bool = False
    one_batch: bool = False
    interval: str | None = None
    rebind: bool = False
    accept_gap: bool = False
    max_failures: int = MAX_FAILURES

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoint", checkpoint_folder(self.checkpoint))
        if self.max_failures < 1:
            raise PipelineError(f"max_failures must be 1 or more, got {self.max_failures!r}")
        if self.interval is not None and not INTERVAL.fullmatch(self.interval):
            raise PipelineError(f"trigger {self.interval!r} is not an interval; write `5 seconds` or `1 minute`")
        if self.interval is not None and self.once:
            raise PipelineError("a trigger interval cannot be combined with once, which ends with the input")

    @property
    def trigger(self) -> dict[str, Any]:
        """Spark's trigger; empty for its default, which runs batch after batch."""
        if self.one_batch:
            return {"once": True}
        if self.interval is not None:
            return {"processingTime": self.interval}
        return {"availableNow": True} if self.once else {}
