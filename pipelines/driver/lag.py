"""Lag: the input that no batch has read, if Spark or its source reports it, and what the ledger keeps of it."""

import json
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.streaming.listener import SourceProgress, StreamingQueryProgress

from tidegauge.pipelines.sources.pending import Pending, combined

# The metric in which sources of files and tables report it.
FILES = "numFilesOutstanding"


def lag(progress: StreamingQueryProgress) -> Pending | None:
    """Return what all sources together have pending, or None if none of them reports it."""
    return combined([_pending(source) for source in progress.sources])


def lag_figures(pending: Pending | None) -> tuple[dict[str, Any], dict[str, datetime]]:
    """Return what the ledger keeps of input that was pending after a batch: figures, and times that become ages.

    A lag in seconds is not known if the source does not say when its oldest input came.
    """
    if pending is None:
        return {}, {}
    figures = {"pending": {"count": pending.count, "unit": pending.unit}}
    if not pending.count:
        return figures | {"lag_seconds": 0}, {}
    if pending.oldest is None:
        return figures, {}
    oldest = datetime.fromisoformat(pending.oldest)
    return figures, {"lag_seconds": oldest if oldest.tzinfo else oldest.replace(tzinfo=UTC)}


def _pending(source: SourceProgress) -> Pending | None:
    metrics: dict[str, str] = dict(source.metrics or {})
    if FILES in metrics:
        return Pending(int(float(metrics[FILES])), "files", None)
    end, latest = _parsed(source.endOffset), _parsed(source.latestOffset)
    if _is_number(end) and _is_number(latest):
        return Pending(max(0, latest - end), "offsets", None)
    if _is_by_partition(end) and _is_by_partition(latest):
        behind = (
            at - end.get(topic, {}).get(partition, 0)
            for topic, partitions in latest.items()
            for partition, at in partitions.items()
        )
        return Pending(sum(max(0, each) for each in behind), "messages", None)
    return None


def _parsed(offset: str | None) -> Any:
    try:
        return json.loads(offset or "null")
    except ValueError:
        return None


def _is_number(offset: Any) -> bool:
    return isinstance(offset, int)


def _is_by_partition(offset: Any) -> bool:
    """Return whether an offset is written as Kafka's: {"topic": {"0": 17}}."""
    return isinstance(offset, dict) and all(
        isinstance(partitions, dict) and all(map(_is_number, partitions.values())) for partitions in offset.values()
    )
