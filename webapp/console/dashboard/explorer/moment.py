"""Finds the batch that people name by its number, or by a time, which means the newest batch at that time."""

from tidegauge.webapp.catalog.batches import batch_at
from tidegauge.webapp.catalog.queries import PipelineStatus
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.time_charts import moment_of


class UnknownMomentError(Exception):
    """A text is neither a batch nor a time, or no batch is known at that time."""


def batch_of(text: str, pipeline: PipelineStatus) -> int | None:
    """Return the number of the batch; None for an empty text, which means the latest one."""
    if not text:
        return None
    number = whole_number(text)
    if number is not None:
        return number
    moment = moment_of(text)
    if moment is None:
        raise UnknownMomentError(f"{text!r} is neither a batch number nor a time such as 2026-11-23T10:00Z")
    found = batch_at(pipeline, moment)
    if found is None:
        raise UnknownMomentError(f"no batch at {moment:%Y-%m-%d %H:%M:%S} UTC or earlier is known; give a later time")
    return found
