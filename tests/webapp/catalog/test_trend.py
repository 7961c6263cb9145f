"""The trend of a lag: never green while it grows, and when the pending input will be counted."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.trend import Trend, about
from tidegauge.webapp.catalog.verdicts import Limits, verdict

LIMITS = Limits(stale_seconds=3600, rejected_share=None)
BEFORE = Trend(seconds=600.0, lag=240.0, pending=315, unit="files", between=15.0)


@pytest.fixture
def behind(filled):
    """A pipeline with 275 files left, the oldest of them 8 minutes old."""
    return replace(
        queries.pipeline("flights"), lag_seconds=480.0, pending={"count": 275, "unit": "files"}, trend=BEFORE
    )


@pytest.mark.parametrize(
    ("change", "name", "tone", "reason"),
    [
        ({}, "falling behind", "watch", "behind 8 min, growing; done in about 69 min (275 files at 4 a minute)"),
        ({"pending": {"count": 400}}, "falling behind", "watch", "behind 8 min, growing"),
        (
            {"pending": {"count": 60}},
            "catching up", "good", "behind 8 min, growing; done in about 2 min (60 files at 26 a minute)",
        ),
        (
            {"trend": replace(BEFORE, lag=900.0)},
            "catching up", "good", "behind 8 min, shrinking; done in about 69 min (275 files at 4 a minute)",
        ),
        ({"trend": replace(BEFORE, lag=478.0, pending=275)}, "catching up", "good", "behind 8 min, steady"),
        (
            {"lag_seconds": None, "trend": replace(BEFORE, pending=100)},
            "falling behind", "watch", "275 files wait, growing",
        ),
        ({"trend": replace(BEFORE, between=300.0)}, "catching up", "good", "it is counting new input"),
        ({"lag_seconds": 20.0}, "catching up", "good", "it is counting new input"),
        ({"trend": replace(BEFORE, seconds=5.0, between=0.5)}, "catching up", "good", "behind 8 min"),
        ({"trend": None}, "catching up", "good", "it is counting new input"),
        ({"committed_txid": 0}, "starting", "calm", "its first batch is running"),
    ],
)  # fmt: skip
def test_a_verdict_looks_at_the_trend(behind, change, name, tone, reason):
    found = verdict(replace(behind, **change), LIMITS)

    assert (found.name, found.tone, found.reason) == (name, tone, reason)


def test_a_stale_pipeline_says_when_it_will_be_done(behind):
    found = verdict(behind, Limits(stale_seconds=300, rejected_share=None))

    assert (found.name, found.remedy) == ("stale", "Done in about 69 min (275 files at 4 a minute).")


def recorded(filled, minutes_ago: float, lag: float, pending: int) -> None:
    """Commit a batch that many minutes ago, after which so much was left."""
    filled.commit({("JFK", "C00"): 1})
    metrics = {"lag_seconds": lag, "pending": {"count": pending, "unit": "files"}}
    filled.conn.execute(
        "UPDATE tidegauge.batch SET metrics = %s, started_at = %s, committed_at = %s "
        "WHERE txid = (SELECT max(txid) FROM tidegauge.batch)",
        [json.dumps(metrics), *[datetime.now(UTC) - timedelta(minutes=minutes_ago)] * 2],
    )


class TestFromTheLedger:
    def pipeline(self, filled, lag: float, pending: int):
        oldest = datetime.now(UTC) - timedelta(seconds=lag)
        filled.report("running", pending={"count": pending, "unit": "files", "oldest": oldest.isoformat()})
        return queries.pipeline("flights")

    def test_the_oldest_batch_of_the_last_minutes_is_compared_with_now(self, filled):
        for minutes_ago, lag, pending in ((30, 0, 900), (9, 240, 311), (6, 300, 300), (1, 400, 279), (0.5, 420, 275)):
            recorded(filled, minutes_ago, lag, pending)

        trend = self.pipeline(filled, 480, 275).trend

        # Only batches that are a power of 2 before the newest are looked at: of these five, 4, 2 and 1 before.
        assert (trend.lag, trend.pending) == (300, 300)
        assert trend.seconds == pytest.approx(360, abs=30)
        assert trend.between == pytest.approx(165, abs=1)

    def test_a_batch_that_hangs_makes_the_lag_grow(self, filled):
        recorded(filled, 40, 5, 3)
        recorded(filled, 39, 5, 3)

        assert verdict(self.pipeline(filled, 600, 3), LIMITS).name == "falling behind"

    def test_without_recorded_lag_there_is_no_trend(self, filled):
        assert self.pipeline(filled, 600, 3).trend is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(9, "9 s"), (119, "120 s"), (4_125, "69 min"), (90_000, "25 h"), (900_000, "10 days")]
)
def test_a_length_has_two_digits(seconds, text):
    assert about(seconds) == text
