"""Progress: what Spark and the source measure for each batch of a streaming query, as the ledger stores it."""

import math
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tidegauge.pipelines.driver.lag import lag, lag_figures
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.state_backends.ledger.batch import Batch, record_metrics

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


@dataclass(frozen=True)
class Measured:
    """What was measured for a batch. metrics: Spark's. pending: the unread input that it reports; None if it does not.

    newest_event: the latest event time in it.
    """

    batch: Batch
    metrics: dict[str, Any]
    pending: Pending | None
    newest_event: datetime | None

    def record(self, conn: psycopg.Connection, left: Pending | None) -> None:
        """Store it in the ledger. left: the unread input that the source reports; None if it was not asked."""
        figures, times = lag_figures(left or self.pending)
        if self.newest_event is not None:
            times["event_age_seconds"] = self.newest_event
        record_metrics(conn, self.batch, self.metrics | figures, times)


class ProgressLog:
    """Keeps what Spark measured for each batch of one streaming query, until it is taken.

    Spark shows the latest progress and keeps few older ones, so it is collected before each batch and twice a second.
    None is missed, however short the batches are. Progress of an idle query belongs to no batch and is left out.
    One thread runs batches while another may call `take`.
    pending: the unread input in the latest progress; None if the sources do not tell Spark.
    """

    def __init__(self) -> None:
        self.pending: Pending | None = None
        self._expected: dict[int, tuple[Batch, datetime | None]] = {}
        self._measured: deque[Measured] = deque()

    def expect(self, batch_id: int, batch: Batch, newest_event: datetime | None = None) -> None:
        """Note that Spark's batch `batch_id` was applied as `batch`; its progress comes later.

        newest_event: the latest event time in it.
        """
        self._expected[batch_id] = batch, newest_event

    def collect(self, query: StreamingQuery) -> bool:
        """Read the progress that the query shows. Returns True if no more is expected."""
        if self._expected:
            last = query.lastProgress
            # If the last one is not ours, it is older and ours is yet to come, or the query is idle and ours is recent.
            shown = [last] if last is not None and last.batchId in self._expected else query.recentProgress
            for progress in shown:
                expected = self._expected.pop(progress.batchId, None) if _has_run(progress) else None
                if expected is not None:
                    self.pending = lag(progress)
                    self._measured.append(Measured(expected[0], metrics(progress), self.pending, expected[1]))
        return not self._expected

    def take(self) -> list[Measured]:
        """Return and forget the batches measured so far."""
        # One by one, because the thread that runs batches may add to it meanwhile.
        return [self._measured.popleft() for _ in range(len(self._measured))]


def metrics(progress: StreamingQueryProgress) -> dict[str, Any]:
    """Return what the ledger keeps of a progress: durations of a trigger's parts in ms, rows, rates per second."""
    rates = {
        "input_rows_per_second": progress.inputRowsPerSecond,
        "processed_rows_per_second": progress.processedRowsPerSecond,
    }
    return {
        "duration_ms": {part: progress.durationMs[part] for part in DURATIONS if part in progress.durationMs},
        "input_rows": progress.numInputRows,
        # The first batch has no input rate, because none came before it.
        **{name: rate for name, rate in rates.items() if rate is not None and math.isfinite(rate)},
    }


def _has_run(progress: StreamingQueryProgress) -> bool:
    return "addBatch" in progress.durationMs
