"""Windows: expressions for the start of an event's window, for `group_by` and `each`.

Windows of a fixed width are those of Spark's `window()`. Calendar windows begin at midnight in a time zone: a day has
23 or 25 hours when the clock changes, and begins later if midnight is skipped. A window is closed once the watermark
has reached its end. Closing and lateness are both computed here in Python, so that they always agree.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from tidegauge.pipelines.declare.event_time import interval
from tidegauge.pipelines.errors import PipelineError
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.spec.state_spec import StateSpec
from tidegauge.state_backends.spec.tiles import WIDTHS

Unit = Literal["day", "week", "month", "quarter", "year"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_MICROSECONDS = 86_400_000_000

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = {"month": 1, "quarter": 3, "year": 12}

# Unicode CLDR, supplemental data on weeks: in all other territories a week begins on Monday.
FIRST_DAYS = {
    "friday": "MV",
    "saturday": "AE AF BH DJ DZ EG IQ IR JO KW LY OM QA SD SY",
    "sunday": "AG AS BD BR BS BT BW BZ CA CO DM DO ET GT GU HK HN ID IL IN JM JP KE KH KR LA MH MM MO MT MX MZ NI NP "
    "PA PE PH PK PR PT PY SA SG SV TH TT TW UM US VE VI WS YE ZA ZW",
}


class Window(str):
    """The start of an event's window: a Spark SQL expression that also knows when its windows end."""

    def open_from(self, time: datetime) -> datetime:
        """Return the start of the first window that ends after `time`: those that begin earlier have ended."""
        raise NotImplementedError

    def end(self, start: datetime) -> datetime:
        """Return the end of the window that begins at `start`."""
        raise NotImplementedError


class FixedWindow(Window):
    """A window of a fixed width; one begins every slide, counted from 1970-01-01T00:00Z plus `start`."""

    def __new__(cls, column: str, width: str, slide: str, start: str) -> "FixedWindow":
        window = super().__new__(cls, f"window({quoted(column)}, '{width}', '{slide}', '{start}').start")
        window.times = (width, slide, start)
        return window

    times: tuple[str, str, str]

    def open_from(self, time: datetime) -> datetime:
        width, slide, start = map(interval, self.times)
        first = EPOCH + start
        return first + ((time - width - first) // slide + 1) * slide

    def end(self, start: datetime) -> datetime:
        return start + interval(self.times[0])


class CalendarWindow(Window):
    """A day, week, month, quarter or year of a time zone. week_starts: the number of the day, from 0 for Monday."""

    unit: Unit
    zone: ZoneInfo
    week_starts: int

    def __new__(cls, column: str, unit: Unit, zone: str, week_starts: int) -> "CalendarWindow":
        # date_trunc() is not used, because it truncates in the time zone of Spark's session.
        local = f"unix_micros(from_utc_timestamp({quoted(column)}, '{zone}'))"
        day = f"date_from_unix_date(CAST(({local} - pmod({local}, {DAY_MICROSECONDS})) div {DAY_MICROSECONDS} AS int))"
        first = f"trunc({day}, '{unit}')"
        if unit == "day":
            first = day
        elif unit == "week":
            first = f"date_sub({day}, pmod(weekday({day}) - {week_starts}, 7))"
        midnight = f"timestamp_micros(CAST(unix_date({first}) AS bigint) * {DAY_MICROSECONDS})"
        window = super().__new__(cls, f"to_utc_timestamp({midnight}, '{zone}')")
        window.unit, window.zone, window.week_starts = unit, ZoneInfo(zone), week_starts
        return window

    def open_from(self, time: datetime) -> datetime:
        return self._midnight(self._first(time.astimezone(self.zone).date()))

    def end(self, start: datetime) -> datetime:
        first = start.astimezone(self.zone).date()
        if self.unit in MONTHS:
            months = first.year * 12 + first.month - 1 + MONTHS[self.unit]
            return self._midnight(date(months // 12, months % 12 + 1, 1))
        return self._midnight(first + timedelta(days=7 if self.unit == "week" else 1))

    def _first(self, day: date) -> date:
        """Return the first day of the window that contains a day."""
        if self.unit == "week":
            return day - timedelta(days=(day.weekday() - self.week_starts) % 7)
        if self.unit == "day":
            return day
        months = MONTHS[self.unit]
        return date(day.year, (day.month - 1) // months * months + 1, 1)

    def _midnight(self, day: date) -> datetime:
        # If midnight is skipped or comes twice, Python takes the offset before the change: the day's first instant.
        return datetime(day.year, day.month, day.day, tzinfo=self.zone).astimezone(UTC)


def tumbling(column: str, width: str, start: str = "0 seconds") -> Window:
    """Return the expression for the start of an event's window: `tumbling("time_hour", "1 hour")`.

    column: the event time. width, start: as for `sliding`.
    """
    return FixedWindow(column, width, width, start)


def sliding(column: str, width: str, slide: str, start: str = "0 seconds") -> Window:
    """Return the expression for the starts of all windows of an event, for `each` or `group_by`: one row per window.

    width, slide, start: intervals of weeks or less, such as `25 minutes`; slide is at most width, and start less than
    slide. Windows begin at 1970-01-01T00:00Z plus start and every slide before and after it, whatever the time zone: a
    day has 24 hours. An event without a time is in no window, so its row is left out.
    They are the windows of Spark's own `window(column, width, slide, start)`.
    """
    return FixedWindow(column, width, slide, start)


def calendar(column: str, unit: Unit, zone: str = "UTC", week_starts: str = "monday") -> Window:
    """Return the expression for the start of an event's calendar window: `calendar("at", "month", "Europe/Berlin")`.

    column: the event time. unit: day, week, month, quarter or year. zone: the IANA name of the time zone
    whose midnight begins a window; that instant is stored as its start. week_starts: a day, such as `sunday`, or a
    locale or territory, such as `en_US` or `US`, whose first day of the week is taken from Unicode CLDR.
    Raises PipelineError for an unknown unit, zone, day or locale.
    """
    if unit not in ("day", "week", *MONTHS):
        raise PipelineError(f"calendar window over {column!r}: unit {unit!r} is not day, week, month, quarter or year")
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError) as error:
        raise PipelineError(
            f"calendar window over {column!r}: zone {zone!r} is unknown; write its name, such as 'Europe/Berlin'"
        ) from error
    return CalendarWindow(column, unit, zone, _first_day(column, week_starts))


def check_finest_tile(spec: StateSpec, keys: Mapping[str, str], *, may_close: bool) -> None:
    """Check the groups of a state with tiles. keys: key column to its expression. may_close: whether windows close.

    Raises PipelineError unless the tiles' key column is a tumbling window as wide as the finest tile.
    """
    tiles = spec.tiling
    if tiles is None:
        return
    window, width = keys[tiles.column], WIDTHS[tiles.finest]
    is_finest = isinstance(window, FixedWindow) and [*map(interval, window.times)] == [width, width, timedelta()]
    if not is_finest:
        raise PipelineError(
            f"state {spec.name!r}: its finest tile is a {tiles.finest}, so group by {tiles.column}=tumbling(.., "
            f"'1 {tiles.finest}')"
        )
    if may_close:
        raise PipelineError(
            f"state {spec.name!r}: has tiles, which compaction folds, so its windows cannot close; leave out "
            "allowed_lateness, or feed a second state without tiles"
        )


def _first_day(column: str, week_starts: str) -> int:
    if week_starts.lower() in DAYS:
        return DAYS.index(week_starts.lower())
    territory = week_starts.replace("-", "_").rpartition("_")[2]
    if not (len(territory) == 2 and territory.isalpha() and territory.isupper()):
        raise PipelineError(
            f"calendar window over {column!r}: week_starts {week_starts!r} is neither a day, such as 'sunday', nor a "
            "locale with its territory, such as 'en_US'"
        )
    day = next((day for day, territories in FIRST_DAYS.items() if territory in territories.split()), "monday")
    return DAYS.index(day)
