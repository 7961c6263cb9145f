"""Times as a JSON state keeps them, and sums of them that end with the calendar."""

from datetime import UTC, datetime, timedelta

# The step from one time to the next: what is due a tick after T is due when the watermark has passed T.
TICK = timedelta(microseconds=1)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


def as_text(at: datetime) -> str:
    """Return ISO text in UTC; texts of one length, in the order of the times."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def after(at: datetime, by: timedelta) -> datetime:
    """Return the sum, or the end of time where it would lie beyond: one odd event must not stop a pipeline."""
    return END_OF_TIME if by > END_OF_TIME - at else at + by


def has_passed(watermark: datetime | None, due: datetime) -> bool:
    return watermark is not None and due <= watermark
