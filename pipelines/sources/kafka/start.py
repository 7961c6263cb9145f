"""Where a query over Kafka's topics starts if it has no checkpoint: at either end, at a time, or at given offsets."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tidegauge.pipelines.checkpoint.files import compact_json
from tidegauge.pipelines.sources.kafka.admin import KafkaAdmin, Offsets

# Topic to partition to offset.
Start = str | datetime | Mapping[str, Mapping[int, int]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = -2  # Spark's number for the earliest offset


def start_fault(start: Any, topics: tuple[str, ...] | None) -> str:
    """Say what is wrong with a start; empty if nothing is. topics: those that are read; None if by a pattern."""
    if isinstance(start, datetime):
        return "" if start.tzinfo else f"starting {start!r}: give a time with its zone"
    if not isinstance(start, Mapping):
        named = "'earliest', 'latest', a time, or offsets as {'orders': {0: 120}}"
        return "" if start in ("earliest", "latest") else f"starting {start!r}: give {named}"
    for topic, partitions in start.items():
        if topics is not None and topic not in topics:
            return f"starting {topic!r}: is not one of the topics {list(topics)!r}"
        if not isinstance(partitions, Mapping) or not all(map(_is_offset, [*partitions, *partitions.values()])):
            return f"starting {{{topic!r}: {partitions!r}}}: give the offset of each partition, as {{0: 120}}"
    return ""


def start_options(start: Start, admin: KafkaAdmin) -> dict[str, str]:
    """Return Spark's options. Partitions that are not named or are added later are read from their first message on.

    A partition that has no message at the time of a start, or later, is read from its next message on.
    """
    if isinstance(start, datetime):
        return {"startingTimestamp": str(_ms(start)), "startingOffsetsByTimestampStrategy": "latest"}
    if isinstance(start, str):
        return {"startingOffsets": start}
    # All partitions, because Spark requires an offset for each.
    offsets = {
        topic: {str(each): start.get(topic, {}).get(each, EARLIEST) for each in partitions}
        for topic, partitions in admin.partitions().items()
    }
    absent = [f"{topic}/{each}" for topic in start for each in start[topic] if str(each) not in offsets.get(topic, {})]
    if absent:
        raise LookupError(absent[0])
    return {"startingOffsets": compact_json(offsets)}


def start_offsets(start: Start, admin: KafkaAdmin, earliest: Offsets) -> Offsets:
    """Return the offsets where a query that starts now would begin, for a start other than `latest`."""
    if isinstance(start, datetime):
        return admin.offsets_at(_ms(start))
    given: Mapping[str, Mapping[int, int]] = start if isinstance(start, Mapping) else {}
    return {
        topic: {each: max(first, given.get(topic, {}).get(int(each), first)) for each, first in partitions.items()}
        for topic, partitions in earliest.items()
    }


def _ms(at: datetime) -> int:
    """Return milliseconds since 1970, rounded up, so that no message before the time is read."""
    return -((EPOCH - at) // timedelta(milliseconds=1))


def _is_offset(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
