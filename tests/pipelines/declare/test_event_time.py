"""Event time: what holds the watermark back, and what moves it while input pauses."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.pipelines.declare.event_time import EventTime, interval
from tidegauge.pipelines.declare.stream import Stream, Watermark
from tidegauge.pipelines.errors import PipelineError

START = datetime(2024, 1, 1, tzinfo=UTC)
STRICT = Watermark("at", "0 seconds", False)
PAUSING = Watermark("at", "0 seconds", False, "5 minutes")


def at(minute):
    return START + timedelta(minutes=minute)


def times(**minutes):
    return {name.lstrip("_"): at(minute) for name, minute in minutes.items()}


def test_a_stream_without_idle_after_holds_the_watermark_back():
    time = EventTime(times(_0=10, _1=30), times(_0=40, _1=90), at(10))

    assert time.watermark_at([STRICT, STRICT], at(100)) == at(10)


def test_an_idle_stream_does_not_hold_the_others_back():
    time = EventTime(times(_0=10, _1=30), times(_0=40, _1=99), at(10))

    assert time.watermark_at([PAUSING, PAUSING], at(44)) == at(10)
    assert time.watermark_at([PAUSING, PAUSING], at(100)) == at(30)


def test_a_stream_that_never_had_a_tuple_holds_others_back_until_it_is_idle():
    time = EventTime(times(_1=30), times(_0=0, _1=4))

    assert time.watermark_at([PAUSING, PAUSING], at(4)) is None
    assert time.watermark_at([PAUSING, PAUSING], at(5)) == at(30)


def test_once_all_are_idle_time_goes_on_with_the_clock():
    time = EventTime(times(_0=10), times(_0=100), at(10))

    assert time.watermark_at([PAUSING], at(104)) == at(10)
    assert time.watermark_at([PAUSING], at(105)) == at(15)
    assert time.watermark_at([PAUSING], at(160)) == at(70)


def test_without_any_time_there_is_no_watermark():
    assert EventTime({}, times(_0=0)).watermark_at([PAUSING], at(99)) is None
    assert EventTime().watermark_at([], at(99)) is None


minutes = st.integers(0, 200)
streams = st.lists(st.tuples(st.none() | minutes, minutes, st.booleans()), min_size=1, max_size=3)


@given(streams, minutes, minutes)
def test_the_watermark_never_goes_back(drawn, before, later):
    marks = {str(place): at(mark) for place, (mark, _, _) in enumerate(drawn) if mark is not None}
    seen = {str(place): at(seen) for place, (_, seen, _) in enumerate(drawn)}
    declared = [PAUSING if pausing else STRICT for _, _, pausing in drawn]
    first = EventTime(marks, seen).watermark_at(declared, at(before))

    second = EventTime(marks, seen, first).watermark_at(declared, at(before + later))

    assert first is None or second >= first


def test_an_interval_without_a_fixed_length_is_refused():
    assert interval("90 minutes") == timedelta(minutes=90)
    assert interval("1 week") == timedelta(weeks=1)
    with pytest.raises(PipelineError, match="interval '1 month' has no fixed length or cannot be read; write '30 sec"):
        interval("1 month")


def test_what_contradicts_itself_is_refused_where_it_is_declared():
    stream = Stream((), lambda context: None)

    with pytest.raises(PipelineError, match="idle_after '0 seconds' must be longer than zero"):
        stream.with_watermark("at", "1 hour", idle_after="0 seconds")
    with pytest.raises(PipelineError, match="give drop_late or allowed_lateness, not both"):
        stream.with_watermark("at", "1 hour", drop_late=True, allowed_lateness="1 hour")
    with pytest.raises(PipelineError, match=r"leaves nothing out as too late; call late\(\) on one"):
        stream.with_watermark("at", "1 hour").late()
