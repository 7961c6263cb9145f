"""Calendar windows: those of a time zone's calendar, over changes of its clock, against plain Python."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.pipelines.declare.windows import FIRST_DAYS, calendar, sliding, tumbling
from tidegauge.pipelines.errors import PipelineError

UNITS = ("day", "week", "month", "quarter", "year")
# Midnight is skipped in São Paulo and Beirut, comes twice in Havana; Kathmandu is at +05:45, Apia skipped a day.
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Beirut", "America/Havana", "Asia/Kathmandu",
    "Australia/Lord_Howe", "Pacific/Apia",
)  # fmt: skip
MICROSECOND = timedelta(microseconds=1)


def plainly(at, unit, zone, week_starts=0):
    """The first instant of the window: the earliest of the days of the window, looked through one by one."""
    day = at.astimezone(ZoneInfo(zone)).date()

    def window_of(day):
        if unit == "week":
            return day.toordinal() - (day.weekday() - week_starts) % 7
        return {"day": day, "month": (day.year, day.month), "year": day.year}.get(
            unit, (day.year, (day.month - 1) // 3)
        )

    first = day
    while window_of(first - timedelta(days=1)) == window_of(day):
        first -= timedelta(days=1)
    instant = datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(hours=20)
    # The first instant that is in that day or a later one of the window, searched minute by minute.
    while instant.astimezone(ZoneInfo(zone)).date() < first:
        instant += timedelta(minutes=1)
    return instant


moments = st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))


@given(moments, st.sampled_from(UNITS), st.sampled_from(ZONES), st.integers(0, 6))
@example(datetime(2018, 11, 4, 2, 59, 59, tzinfo=UTC), "day", "America/Sao_Paulo", 0)
@example(datetime(2018, 11, 4, 3, tzinfo=UTC), "day", "America/Sao_Paulo", 0)
@example(datetime(2024, 11, 3, 4, 30, tzinfo=UTC), "day", "America/Havana", 0)
@example(datetime(2024, 11, 3, 5, 30, tzinfo=UTC), "day", "America/Havana", 0)
@example(datetime(2011, 12, 30, 12, tzinfo=UTC), "day", "Pacific/Apia", 0)
def test_windows_end_where_the_next_ones_begin_and_are_those_of_plain_python(at, unit, zone, week_starts):
    day = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")[week_starts]
    window = calendar("at", unit, zone, day)

    start = window.open_from(at)

    assert start == plainly(at, unit, zone, week_starts)
    assert start <= at < window.end(start)
    assert window.open_from(window.end(start)) == window.end(start)
    assert window.open_from(window.end(start) - MICROSECOND) == start


@given(moments, st.sampled_from([("1 hour", "1 hour"), ("60 minutes", "25 minutes"), ("1 week", "1 day")]))
def test_fixed_windows_that_have_ended_are_those_before_the_first_open_one(at, window):
    window = sliding("at", *window, "5 minutes")

    first = window.open_from(at)

    slide = timedelta(minutes=60) if window.times[1] == "1 hour" else timedelta(minutes=25)
    slide = timedelta(days=1) if window.times[1] == "1 day" else slide
    assert window.end(first) > at
    assert window.end(first - slide) <= at


@pytest.mark.spark
@pytest.mark.parametrize("session_zone", ["UTC", "America/New_York"])
def test_spark_gives_the_windows_of_python_whatever_its_own_time_zone(spark, session_zone):
    before = spark.conf.get("spark.sql.session.timeZone")
    moments = [datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)]
    for start in [(1995, 1, 1), (2018, 11, 3), (2024, 3, 30), (2024, 10, 26), (2024, 11, 2), (2011, 12, 29)]:
        begin = datetime(*start, tzinfo=UTC)
        moments += [begin + timedelta(minutes=30 * step) for step in range(100)]
    spark.conf.set("spark.sql.session.timeZone", session_zone)
    try:
        frame = spark.createDataFrame([(at,) for at in moments], "at timestamp").coalesce(1)
        windows = [calendar("at", unit, zone, "sunday") for unit in UNITS for zone in ZONES]
        columns = [f"unix_micros({window}) AS w{place}" for place, window in enumerate(windows)]
        rows = frame.selectExpr("unix_micros(at) AS at", *columns).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for at, *starts in rows:
        moment = epoch + at * MICROSECOND
        expected = [(window.open_from(moment) - epoch) // MICROSECOND for window in windows]
        assert starts == expected, moment


@pytest.mark.spark
def test_the_first_days_of_weeks_are_those_of_javas_copy_of_cldr(spark):
    jvm = spark._jvm.java
    for code in ("DE", "US", "GB", "FR", "IL", "EG", "SA", "BR", "JP", "IN", "MV", "IR", "PT", "MX", "ZA", "KR"):
        number = jvm.time.temporal.WeekFields.of(jvm.util.Locale.forLanguageTag(f"und-{code}")).getFirstDayOfWeek()
        assert calendar("at", "week", "UTC", code).week_starts == number.getValue() - 1, code
    assert not set(FIRST_DAYS["sunday"].split()) & set(FIRST_DAYS["saturday"].split())


def test_a_locale_or_a_day_says_when_a_week_begins():
    begins = [calendar("at", "week", "UTC", given).week_starts for given in ("de_DE", "en-US", "US", "Sunday")]

    assert begins == [0, 6, 6, 6]


def test_what_is_no_calendar_window_is_refused_where_it_is_declared():
    with pytest.raises(PipelineError, match="unit 'decade' is not day, week, month, quarter or year"):
        calendar("at", "decade")
    with pytest.raises(PipelineError, match="zone 'Mars/Base' is unknown; write its name, such as 'Europe/Berlin'"):
        calendar("at", "day", "Mars/Base")
    with pytest.raises(PipelineError, match="week_starts 'german' is neither a day, such as 'sunday', nor a locale"):
        calendar("at", "week", "UTC", "german")


def test_a_month_has_its_own_length():
    month = calendar("at", "month", "Europe/Berlin")

    start = month.open_from(datetime(2024, 3, 15, tzinfo=UTC))

    assert month.end(start) - start == timedelta(days=31, hours=-1)
    assert start.astimezone(ZoneInfo("Europe/Berlin")).date() == date(2024, 3, 1)
    assert tumbling("at", "1 day").end(start) - start == timedelta(days=1)
