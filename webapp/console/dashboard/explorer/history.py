"""What it would cost to keep the history of a state that keeps none, so that readers can decide on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings

from tidegauge.webapp.catalog.batches import BatchSummary
from tidegauge.webapp.catalog.state_summary import StateSummary


@dataclass(frozen=True)
class HistoryCost:
    """rows_per_day: versions that the changelog would get. bytes: its size once it has been kept for `kept`."""

    rows_per_day: int
    bytes: int
    kept: timedelta


def history_cost(state: StateSummary, batches: Sequence[BatchSummary], now: datetime) -> HistoryCost | None:
    """Return the cost at the pace of these batches, which come newest first; None if it is unknown.

    A version takes about as many bytes as a row of the state.
    """
    done = [(batch.committed_at, batch.keys_written.get(state.name, 0)) for batch in batches if batch.committed_at]
    if not done or not state.keys_estimate:
        return None
    days = max((now - done[-1][0]) / timedelta(days=1), 1 / 86_400)
    rows_per_day = sum(keys for _, keys in done) / days
    kept = timedelta(hours=settings.TIDEGAUGE_CHANGELOG_KEEP_HOURS)
    rows_kept = rows_per_day * (kept / timedelta(days=1))
    return HistoryCost(round(rows_per_day), round(rows_kept * state.bytes / state.keys_estimate), kept)
