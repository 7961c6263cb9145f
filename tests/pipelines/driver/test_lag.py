"""What a query's progress says that no batch has read."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql.streaming.listener import SourceProgress

from tidegauge.pipelines.driver.lag import lag, lag_figures
from tidegauge.pipelines.sources.pending import Pending

RATES = {"description": "any", "numInputRows": 1, "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}


class Progress:
    def __init__(self, *sources):
        self.sources = [
            SourceProgress.fromJson(
                {
                    "description": "any",
                    "numInputRows": 1,
                    "inputRowsPerSecond": 1.0,
                    "processedRowsPerSecond": 1.0,
                    **each,
                }
            )
            for each in sources
        ]


def source(end, latest, **metrics):
    offsets = {"startOffset": None, "endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}
    return {**offsets, "metrics": metrics}


@pytest.mark.parametrize(
    ("found", "pending"),
    [
        (source({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7, "2": 3}}), Pending(7, "messages", None)),
        (source(12, 15), Pending(3, "offsets", None)),
        (source({"reservoirVersion": 3}, None, numFilesOutstanding="4"), Pending(4, "files", None)),
        (source({"snapshot_id": 3}, {"snapshot_id": 9}), None),
        (source(None, None), None),
    ],
)
def test_the_lag_of_a_source_is_what_it_tells_spark(found, pending):
    assert lag(Progress(found)) == pending


def test_the_lag_of_a_query_is_that_of_all_sources_that_tell():
    found = source(1, 3)

    assert lag(Progress(found, source(None, None), found)) == Pending(4, "offsets", None)


@pytest.mark.parametrize(
    ("pending", "figures", "times"),
    [
        (None, {}, {}),
        (Pending(0, "files", None), {"lag_seconds": 0}, {}),
        (Pending(3, "messages", None), {}, {}),
        (Pending(3, "files", "2024-01-01T10:00:00"), {}, {"lag_seconds": datetime(2024, 1, 1, 10, tzinfo=UTC)}),
    ],
)
def test_the_seconds_of_a_lag_are_known_where_the_source_tells_since_when(pending, figures, times):
    known = {} if pending is None else {"pending": {"count": pending.count, "unit": pending.unit}}

    assert lag_figures(pending) == (known | figures, times)
