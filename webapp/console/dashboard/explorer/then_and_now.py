"""Compares the keys of a state, or groups of them, with an earlier batch, or with an earlier stretch of event time.

A state with a time in its key holds the past in its keys: "the last 7 days against those before" needs no history. For
other states the earlier values come from the changelog.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from tidegauge.state_backends import Snapshot, StateSpec
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.tiles import WIDTHS, Tiles, Until, check_kept, until_from
from tidegauge.webapp.api.groups import most_folded
from tidegauge.webapp.catalog.models import State
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.dashboard.entries import Bar, bars, is_number, time_columns
from tidegauge.webapp.console.dashboard.explorer.columns import Column, columns
from tidegauge.webapp.console.dashboard.explorer.moment import UnknownMomentError, batch_of, span_of
from tidegauge.webapp.console.dashboard.explorer.question import Question
from tidegauge.webapp.console.dashboard.explorer.table import TOP_BARS, Heading, Row, Table
from tidegauge.webapp.core.writing import number

Answer = TypeVar("Answer")

# Each has four columns.
MOST_MEASURES = 3


@dataclass(frozen=True)
class Window:
    """A stretch of event time, `since` excluded and `until` included, in a key column. None: no bound.

    granularity: of a state with tiles, whose stretches include `since` and exclude `until`, the tile in use at `since`.
    """

    column: str
    since: datetime | None = None
    until: datetime | None = None
    granularity: str = ""

    @property
    def conditions(self) -> list[Filter]:
        bounds = ((">=" if self.granularity else ">", self.since), ("<" if self.granularity else "<=", self.until))
        return [Filter(self.column, operator, _text(at)) for operator, at in bounds if at is not None]

    def before(self, span: timedelta) -> "Window":
        return Window(self.column, self.since and self.since - span, self.until and self.until - span)


def _text(at: datetime) -> str:
    """Return a time as text, or a date, which has no time zone."""
    return at.isoformat() if at.tzinfo else at.date().isoformat()


@dataclass(frozen=True)
class Sides:
    """What is read for both columns: conditions, and the batch; None for the latest. then: None without comparison.

    covered: the events that are shown of a state with tiles, if not all are.
    """

    now: tuple[list[Filter], int | None]
    then: tuple[list[Filter], int | None] | None
    covered: Window | None = None


def sides(reader: Reader, question: Question, prefix: Key, pipeline: PipelineStatus) -> Sides:
    """Raises UnknownMomentError, and what `Reader.page` raises."""
    at_txid = batch_of(question.as_of, pipeline)
    window, shift = _window(reader, question, prefix, at_txid), span_of(question.than)
    conditions = question.conditions
    now = [*conditions, *window.conditions]
    if not question.than:
        return Sides((now, at_txid), None, window if window.granularity else None)
    if window.granularity:
        raise UnknownMomentError(
            "a state with tiles cannot compare two stretches of time, because they may cover different lengths"
        )
    if window.since is not None and shift is not None:
        return Sides((now, at_txid), ([*conditions, *window.before(shift).conditions], at_txid))
    return Sides((now, at_txid), (now, batch_of(question.than, pipeline)))


def _window(reader: Reader, question: Question, prefix: Key, at_txid: int | None) -> Window:
    """Return the last stretch of event time that the question is about, up to the newest key that it matches."""
    column = next(iter(time_columns(reader.spec)), "")
    if not question.last:
        return Window(column)
    span = span_of(question.last)
    if span is None:
        raise UnknownMomentError(f"{question.last!r} is not a length of time such as 7 days")
    newest = reader.page(
        prefix=prefix,
        where=question.conditions,
        order_by=column,
        descending=True,
        limit=1,
        most_sorted=settings.TIDEGAUGE_SORT_MAX_KEYS,
        measures=[],
        at_txid=at_txid,
    ).parsed()
    if not newest:
        return Window(column)
    until = datetime.fromisoformat(newest[0]["key"][list(reader.spec.key).index(column)])
    if reader.spec.tiling is not None:
        return _of_tiles(reader.spec.name, reader.spec.tiling, until, span)
    return Window(column, until - span, until)


def _of_tiles(state: str, tiles: Tiles, newest: datetime, span: timedelta) -> Window:
    """Return the last stretch up to the end of the newest tile, from the start of a tile. Raises TilesGoneError."""
    in_use = tiles_in_use(state)
    until = tiles.start(newest, in_use) + WIDTHS[tiles.in_use(newest, in_use)]
    since = tiles.start(until - span, in_use)
    check_kept(state, since, in_use)
    return Window(tiles.column, since, until, tiles.in_use(since, in_use))


def tiles_in_use(state: str) -> Until:
    """Return which tiles are in use when. A caller that reads rows afterwards compares it again: it may advance."""
    stored: dict[str, str] = State.objects.values_list("tiles_until", flat=True).get(name=state)
    return until_from(stored)


def steadily(spec: StateSpec, answer: Callable[[], Answer]) -> Answer:
    """Return the answer; of a state with tiles, again if a compaction has made tiles coarser while it was read."""
    if spec.tiling is None:
        return answer()
    while True:
        in_use = tiles_in_use(spec.name)
        found = answer()
        if tiles_in_use(spec.name) == in_use:
            return found


def compared_table(reader: Reader, question: Question, prefix: Key, both: Sides) -> Table:
    """Return the table with now, then, their difference and rank. Raises what `Reader.groups` raises."""
    assert both.then is not None
    spec = reader.spec
    shown = compared_columns(spec, question)
    now, then = (_folded(reader, question, prefix, shown, *side) for side in (both.now, both.then))
    ranked = _ranked_by(shown, question)
    lines = _lines(shown, ranked, now, then)
    _sort(lines, spec, question, ranked)
    complete = len(lines) <= question.limit
    rows = [
        Row(line.key, line.cells(shown), question.within(line.key) if question.group else "")
        for line in lines[: question.limit]
    ]
    return Table(
        _headings(question, shown),
        rows,
        1,
        "",
        complete,
        now.txid,
        now.batch_time,
        _bars(lines, ranked),
        ranked.label if ranked else "",
        then,
    )


def compared_columns(spec: StateSpec, question: Question) -> list[Column]:
    """Return the columns with numbers of the first measures that have some."""
    numbers = [column for column in columns(spec, question.shown_measures(spec)) if column.is_number]
    measures = list(dict.fromkeys(column.measure for column in numbers))
    if not question.measures:
        first = [name for name in measures if name == question.order_by]
        measures = [*first, *(name for name in measures if name not in first)][:MOST_MEASURES]
    return [column for column in numbers if column.measure in measures]


@dataclass
class _Line:
    """ranks: now and then; None where it has no number, or is not there."""

    key: list[Any]
    now: dict[str, Any]
    then: dict[str, Any]
    ranks: tuple[int | None, int | None]

    def cells(self, shown: Sequence[Column]) -> SafeString:
        parts: list[str | SafeString] = [_rank_cell(*self.ranks)]
        for column in shown:
            now, then = column.of(self.now), column.of(self.then)
            parts += [column.shown(now), column.shown(then), difference(now, then), share(now, then)]
        return format_html_join("", '<td class="figure" data-live>{}</td>', ((part,) for part in parts))

    def gain(self, column: Column) -> float | None:
        """Return the difference; a key that is missing on one side counts as 0 there."""
        now, then = (column.of(side) if side else 0 for side in (self.now, self.then))
        return now - then if is_number(now) and is_number(then) else None


def difference(now: Any, then: Any) -> str:
    if not (is_number(now) and is_number(then)):
        return "—"
    return "0" if now == then else f"{'+' if now > then else '−'}{number(abs(now - then))}"  # noqa: RUF001


def share(now: Any, then: Any) -> str:
    """Return the difference in percent of the number before; empty if that is 0."""
    if not (is_number(now) and is_number(then)) or not then or now == then:
        return ""
    return f"{(now - then) / abs(then):+,.1%}".replace("%", " %").replace("-", "−")  # noqa: RUF001


def _rank_cell(now: int | None, then: int | None) -> SafeString:
    if now is None:
        return SafeString("—")
    if then is None:
        return format_html("{} <small>new</small>", now)
    moved = then - now
    return format_html("{} <small>{}</small>", now, f"▲ {moved}" if moved > 0 else f"▼ {-moved}" if moved else "=")


def _folded(
    reader: Reader,
    question: Question,
    prefix: Key,
    shown: Sequence[Column],
    where: Sequence[Filter],
    at_txid: int | None,
) -> Snapshot:
    measures = list(dict.fromkeys(column.measure for column in shown))
    most = most_folded(reader.spec, measures)
    by = question.group or tuple(reader.spec.key)
    return reader.groups(
        by, prefix=prefix, where=where, limit=most, most_folded=most, measures=measures, at_txid=at_txid
    )


def _ranked_by(shown: Sequence[Column], question: Question) -> Column | None:
    """Return the column that the question is ordered by, or the first one."""
    return next((column for column in shown if column.measure == question.order_by), next(iter(shown), None))


def _lines(shown: Sequence[Column], ranked: Column | None, now: Snapshot, then: Snapshot) -> list[_Line]:
    later, earlier = ({tuple(each["key"]): each["value"] for each in side.parsed()} for side in (now, then))
    ranks = _ranks(later, ranked), _ranks(earlier, ranked)
    # In key order: those that are there now, then those that are not any more.
    keys = dict.fromkeys([*later, *earlier])
    return [
        _Line(list(key), later.get(key, {}), earlier.get(key, {}), (ranks[0].get(key), ranks[1].get(key)))
        for key in keys
    ]


def _ranks(values: dict[tuple[Any, ...], Any], column: Column | None) -> dict[tuple[Any, ...], int]:
    """Return the place of each key by its number, the largest first; equal numbers have one place."""
    if column is None:
        return {}
    numbers = {key: column.of(value) for key, value in values.items() if is_number(column.of(value))}
    ordered = sorted(numbers.values(), reverse=True)
    places: dict[float, int] = {}
    for place, each in enumerate(ordered, 1):
        places.setdefault(each, place)
    return {key: places[each] for key, each in numbers.items()}


def _sort(lines: list[_Line], spec: StateSpec, question: Question, ranked: Column | None) -> None:
    """Sort in place; lines without a number come last, in either direction."""
    if question.order_by is not None and question.order_by in spec.key:
        place = list(question.group or spec.key).index(question.order_by)
        lines.sort(key=lambda line: line.key[place], reverse=question.descending)
        return
    if ranked is None or (question.order_by is None and not question.movers):
        return

    def key(line: _Line) -> tuple[bool, float]:
        value: Any = line.gain(ranked) if question.movers else ranked.of(line.now)
        if not is_number(value):
            return True, 0
        return False, -value if question.descending else value

    lines.sort(key=key)


def _headings(question: Question, shown: Sequence[Column]) -> list[Heading]:
    headings = [Heading("rank", True, "none", "")]
    for column in shown:
        here = column.measure == question.order_by
        way = "descending" if question.descending else "ascending"
        turned = column.measure if here and question.descending else f"-{column.measure}"
        by_now = question.address(order=turned if not question.movers else f"-{column.measure}", movers=False)
        by_gain = question.address(order=turned if question.movers else f"-{column.measure}", movers=True)
        headings += [
            Heading(column.label, True, way if here and not question.movers else "none", by_now),
            Heading("then", True, "none", ""),
            Heading(f"change of {column.label}", True, way if here and question.movers else "none", by_gain),
            Heading("in %", True, "none", ""),
        ]
    return headings


def _bars(lines: Sequence[_Line], ranked: Column | None) -> list[Bar]:
    if ranked is None:
        return []
    return bars([(line.key, ranked.of(line.now), ranked.of(line.then)) for line in lines[:TOP_BARS]])
