"""What Spark measured of each batch, kept until somebody writes it down.

Spark shows a query's latest progress and forgets older ones. So it is looked at before each batch and twice a second:
none is missed, however fast they come. An idle query's progress belongs to no batch and is left out.
"""

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from state_backends.journal.ledger import Batch

# Spark's names for the parts of a trigger, in milliseconds.
DURATIONS = (
    "triggerExecution",
    "latestOffset",
    "getBatch",
    "queryPlanning",
    "walCommit",
    "addBatch",
    "commitOffsets",
    "commitBatch",
)


class ProgressLog:
    """The measured batches of one streaming query. One thread runs batches, another may take what has come in."""

    def __init__(self) -> None:
        self._awaited: dict[int, Batch] = {}
        self._measured: deque[tuple[Batch, dict[str, Any]]] = deque()

    def expect(self, batch_id: int, batch: Batch) -> None:
        """Say that Spark's batch `batch_id` was applied as `batch`; its progress is yet to come."""
        self._awaited[batch_id] = batch

    def look(self, query: StreamingQuery) -> bool:
        """Take in what the query shows. Returns True where nothing more is awaited."""
        if self._awaited:
            last = query.lastProgress
            # Anything else is either older, so that ours is yet to come, or idle, and ours is a few before it.
            shown = [last] if last is not None and last.batchId in self._awaited else query.recentProgress
            for progress in shown:
                batch = self._awaited.pop(progress.batchId, None) if _has_run(progress) else None
                if batch is not None:
                    self._measured.append((batch, metrics(progress)))
        return not self._awaited

    def take(self) -> Iterator[tuple[Batch, dict[str, Any]]]:
        """Hand over what was measured and not taken yet."""
        while self._measured:
            yield self._measured.popleft()


def metrics(progress: StreamingQueryProgress) -> dict[str, Any]:
    """Return what is kept of a progress: durations of a trigger's parts in ms, rows, rates per second."""
    rates = {
        "input_rows_per_second": progress.inputRowsPerSecond,
        "processed_rows_per_second": progress.processedRowsPerSecond,
    }
    return {
        "duration_ms": {part: progress.durationMs[part] for part in DURATIONS if part in progress.durationMs},
        "input_rows": progress.numInputRows,
        # The first batch has no rate: nothing came before it.
        **{name: rate for name, rate in rates.items() if rate is not None and math.isfinite(rate)},
    }


def _has_run(progress: StreamingQueryProgress) -> bool:
    return "addBatch" in progress.durationMs
