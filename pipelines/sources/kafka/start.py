"""Where a query over Kafka's topics starts if it has no checkpoint: at an end, at a time, or at offsets."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tidegauge.pipelines.checkpoint.files import compact_json
from tidegauge.pipelines.sources.kafka.admin import KafkaAdmin, Offsets

# Topic to partition to offset.
Start = str | datetime | Mapping[str, Mapping[int, int]]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = -2  # as Spark writes it among offsets


def start_fault(start: Any, topics: tuple[str, ...] | None) -> str:
    """Say what is wrong with a start; empty if nothing is. topics: those that are read; None: by a pattern."""
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
    """Return Spark's options. Partitions that are not named, and those that are added, are read from their first
    message on; where no message is as late as a time, from the next one.
    """
    if isinstance(start, datetime):
        return {"startingTimestamp": str(_ms(start)), "startingOffsetsByTimestampStrategy": "latest"}
    if isinstance(start, str):
        return {"startingOffsets": start}
    # Spark wants all partitions.
    offsets = {
        topic: {str(each): start.get(topic, {}).get(each, EARLIEST) for each in partitions}
        for topic, partitions in admin.partitions().items()
    }
    absent = [f"{topic}/{each}" for topic in start for each in start[topic] if str(each) not in offsets.get(topic, {})]
    if absent:
        raise LookupError(absent[0])
    return {"startingOffsets": compact_json(offsets)}


def start_offsets(start: Start, admin: KafkaAdmin, earliest: Offsets) -> Offsets:
    """Return where a query that starts now would begin, other than at the latest message."""
    if isinstance(start, datetime):
        return admin.offsets_at(_ms(start))
    given: Mapping[str, Mapping[int, int]] = start if isinstance(start, Mapping) else {}
    return {
        topic: {each: max(first, given.get(topic, {}).get(int(each), first)) for each, first in partitions.items()}
        for topic, partitions in earliest.items()
    }


def _ms(at: datetime) -> int:
    """Return milliseconds since 1970, as Kafka counts; what lies within one is rounded up."""
    return -((EPOCH - at) // timedelta(milliseconds=1))


def _is_offset(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
