"""Tumbling and sliding windows: which windows an event falls into, against Spark's own and against plain arithmetic."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import sliding, tumbling
from tidegauge.pipelines.driver.check import check
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

VIEWS = StateSpec("views", key={"start": "timestamptz"}, measures={"count": Count()})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)

# Around both of a year's changes of the clock in Berlin, a leap day, and the beginning of Unix time.
TIMES = [
    EPOCH - timedelta(microseconds=1),
    EPOCH,
    datetime(1960, 5, 5, 10, 5, tzinfo=UTC),
    datetime(2024, 1, 1, 10, 10, tzinfo=UTC),
    datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    *(datetime(2024, 3, 31, 0, 30, tzinfo=UTC) + timedelta(minutes=30) * step for step in range(5)),
    *(datetime(2024, 10, 27, 0, 30, tzinfo=UTC) + timedelta(minutes=30) * step for step in range(5)),
]
UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800}


@pytest.fixture
def in_berlin(spark):
    """A session whose time zone has a summer time; no window may depend on it."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before)


@st.composite
def windows(draw):
    """Draw width, slide and start in one unit, as Spark allows them: start < slide <= width."""
    unit = draw(st.sampled_from(sorted(UNITS)))
    slide = draw(st.integers(1, 60))
    width = draw(st.integers(slide, slide * 5))
    return unit, width, slide, draw(st.integers(1 - slide, slide - 1))


def starts(at, width, slide, start):
    """Yield the starts of the windows that hold `at`; all but `at` in seconds."""
    behind = (at - EPOCH - start * SECOND) % (slide * SECOND)
    while behind < width * SECOND:
        yield at - behind
        behind += slide * SECOND


def counted(frame, expression):
    rows = frame.selectExpr(f"unix_micros({expression}) AS start").collect()
    return Counter(row.start for row in rows)


def counted_by_spark(frame, *window):
    groups = frame.groupBy(F.window("at", *window)).agg(F.count("at").alias("events"))
    starts = groups.select(F.unix_micros("window.start").alias("start"), "events")
    return Counter({row.start: row.events for row in starts.collect()})


# Derandomized, and few: each example is two jobs of Spark.
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(window=windows())
@example(window=("minutes", 60, 25, 0))
@example(window=("days", 2, 1, 0))
def test_an_event_is_in_the_windows_of_spark_and_of_arithmetic(in_berlin, window):
    unit, width, slide, start = window
    width_text, slide_text, start_text = (f"{number} {unit}" for number in (width, slide, start))
    frame = in_berlin.createDataFrame([(at,) for at in TIMES], "at timestamp").coalesce(1)
    expected = Counter(
        (begin - EPOCH) // timedelta(microseconds=1)
        for at in TIMES
        for begin in starts(at, *(number * UNITS[unit] for number in (width, slide, start)))
    )

    ours = counted(frame, sliding("at", width_text, slide_text, start_text))

    assert ours == expected
    assert ours == counted_by_spark(frame, width_text, slide_text, start_text)


def test_sixty_minutes_every_twenty_five_are_the_windows_that_spark_shows(workspace):
    views = Stream.read(JsonFiles(workspace.input, schema="at timestamp"))
    workspace.land("1.json", {"at": "2024-01-01T10:10:00Z"}, {"at": None})

    by_start = views.group_by(start=sliding("at", "60 minutes", "25 minutes"))
    workspace.run(Pipeline("p", [by_start.persistent_aggregate(VIEWS)]))

    assert {start[11:16]: value["count"] for start, value in workspace.values("views").items()} == {
        "09:15": 1,
        "09:40": 1,
        "10:05": 1,
    }


def test_a_tumbling_window_can_begin_off_the_hour(spark):
    frame = spark.createDataFrame([(datetime(2024, 1, 1, 10, 10, tzinfo=UTC),)], "at timestamp")

    [row] = frame.selectExpr(f"date_format({tumbling('at', '1 hour', '15 minutes')}, 'HH:mm') AS start").collect()

    assert row.start == "09:15"


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (("60 minutes", "90 minutes"), "slide_duration"),
        (("60 minutes", "25 minutes", "25 minutes"), "start_time"),
        (("2 months", "1 month"), "greater than a month"),
    ],
)
def test_windows_that_spark_does_not_have_are_refused_at_the_start(workspace, window, reason):
    views = Stream.read(JsonFiles(workspace.input, schema="at timestamp"))
    pipeline = Pipeline("p", [views.group_by(start=sliding("at", *window)).persistent_aggregate(VIEWS)])

    with pytest.raises(PipelineError, match=f"pipeline 'p', state 'views': .*{reason}"):
        check(pipeline, workspace.spark)
