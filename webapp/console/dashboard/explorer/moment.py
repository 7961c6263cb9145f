"""Finds the batch that people name by its number, or by a time, which means the newest batch at that time.

A time is also how long ago it was: `7 days ago`.
"""

import re
from datetime import UTC, datetime, timedelta

from tidegauge.webapp.catalog.batches import batch_at
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.dashboard.pasted import whole_number
from tidegauge.webapp.console.dashboard.time_charts import moment_of


class UnknownMomentError(Exception):
    """A text is neither a batch nor a time, or no batch is known at that time."""


SPAN = re.compile(r"(\d{1,5})\s*(minute|hour|day|week)s?(?:\s+ago)?")


def span_of(text: str) -> timedelta | None:
    """Return the length that a text such as `7 days` or `1 hour ago` names; None for any other text."""
    found = SPAN.fullmatch(text)
    return timedelta(**{f"{found[2]}s": int(found[1])}) if found else None


def batch_of(text: str, pipeline: PipelineStatus) -> int | None:
    """Return the number of the batch; None for an empty text, which means the latest one."""
    if not text:
        return None
    number = whole_number(text)
    if number is not None:
        return number
    span = span_of(text)
    moment = moment_of(text) if span is None else datetime.now(UTC) - span
    if moment is None:
        raise UnknownMomentError(
            f"{text!r} is neither a batch number nor a time such as 2026-11-23T10:00Z or 7 days ago"
        )
    found = batch_at(pipeline, moment)
    if found is None:
        raise UnknownMomentError(f"no batch at {moment:%Y-%m-%d %H:%M:%S} UTC or earlier is known; give a later time")
    return found
