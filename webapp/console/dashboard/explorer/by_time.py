"""Charts of a state with a time in its key: the entries that match a question, folded by this time."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any
from urllib.parse import urlencode

from django.conf import settings

from tidegauge.state_backends import Snapshot, StateSpec
from tidegauge.state_backends.errors import RangeTooLargeError
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.api.groups import most_folded
from tidegauge.webapp.catalog.models import Batch
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.console.dashboard.entries import is_number, time_columns
from tidegauge.webapp.console.dashboard.explorer.columns import Column, columns
from tidegauge.webapp.console.dashboard.explorer.question import ROWS, Question
from tidegauge.webapp.console.dashboard.time_charts import MOST_LINES, Chart, adds_up

MOST_CHARTS = 4
MOST_TIMES = 1_000
# An open page reads the charts again after this time, if there was a commit.
AGAIN_SECONDS = 10


def time_part(spec: StateSpec, question: Question) -> str:
    """Return the key column of the time axis; empty if there is none, or if the question groups by others.

    Tiles have none, because an hour beside minutes would look like a peak.
    """
    times = time_columns(spec) if spec.tiling is None else []
    return times[0] if times and spec.measures and question.group in ((), (times[0],)) else ""


def drawn_as_of(pipeline: PipelineStatus, at_txid: int | None) -> str:
    """Return a value that changes when the charts have to be drawn again: after commits, though not after each."""
    at = pipeline.committed_time if at_txid is None else None
    return str(int(at.timestamp()) // AGAIN_SECONDS if at else 0)


def series_query(question: Question, drawn: str, at_txid: int | None) -> str:
    """Return the query string that reads the series of the charts."""
    moment = "" if at_txid is None else str(at_txid)
    asked = replace(question, order="", limit=ROWS[0], after="", n=0, view="", as_of=moment, than="", movers=False)
    return urlencode(asked.parameters | {"since": drawn}, doseq=True)


def counted_until(pipeline: PipelineStatus, at_txid: int | None) -> datetime | None:
    """Return the event time up to which everything has been counted, as of a batch; None if nothing says so.

    That is the watermark. Without one it is now, if no input waits.
    """
    batch = Batch.objects.filter(pipeline=pipeline.name, txid=pipeline.committed_txid if at_txid is None else at_txid)
    watermark: datetime | None = batch.values_list("watermark", flat=True).first()
    if watermark is not None or at_txid is not None:
        return watermark
    return datetime.now(UTC) if pipeline.lag_seconds == 0 else None


def charts(spec: StateSpec, question: Question, parts: Sequence[str] = ()) -> list[Chart]:
    """Return a chart for each measure with numbers, with a line for each of its columns.

    parts: the names of the values that the lines are split by, of which the last one is the rest; each column then has
    a chart of its own.
    """
    lines: dict[str, list[tuple[str, str]]] = {}
    for column in drawn_columns(spec, question):
        if parts:
            lines[column.label] = [(f"{column.label} {place}", name) for place, name in enumerate(parts)]
        else:
            lines.setdefault(column.measure, []).append((column.label, column.label))
    adding = {column.label for column in drawn_columns(spec, question) if adds_up(spec, column.measure)}
    return [
        Chart(f"by-time-{place}", name, "", lines[name][:MOST_LINES], "steps", name in adding)
        for place, name in enumerate(lines)
    ]


def series_by_time(
    reader: Reader,
    question: Question,
    prefix: Key,
    where: Sequence[Filter],
    at_txid: int | None,
    until: datetime | None,
    values: Sequence[Any] = (),
) -> dict[str, Any]:
    """Return the newest times, and the values of each column at them. Raises what `Reader.groups` raises.

    until: as of `counted_until`. values: as of `largest`, if the question splits the lines.
    """
    spec = reader.spec
    if not values:
        return series_of(spec, question, _by_time(reader, question, prefix, where, at_txid), until)
    of_values = [Filter(question.split, "=", value) for value in values]
    rest = [Filter(question.split, "!=", value) for value in values]
    asked = [[*where, each] for each in of_values] + [[*where, *rest]]
    lines = [series_of(spec, question, _by_time(reader, question, prefix, each, at_txid), until) for each in asked]
    return _together(lines, until)


def _together(lines: Sequence[dict[str, Any]], until: datetime | None) -> dict[str, Any]:
    """Return the series of several questions at common times, each named by the place of its question."""
    times = sorted({at for line in lines for at in line["times"]})[-MOST_TIMES:]
    series: dict[str, list[float | None]] = {}
    for place, line in enumerate(lines):
        for name, numbers in line["series"].items():
            known = dict(zip(line["times"], numbers, strict=True))
            series[f"{name} {place}"] = [known.get(at) for at in times]
    window = _window([datetime.fromtimestamp(at, UTC) for at in times], until)
    return {"txid": lines[0]["txid"], "times": times, "series": series} | window


def split_values(
    reader: Reader, question: Question, prefix: Key, where: Sequence[Filter], at_txid: int | None
) -> list[Any]:
    """Return the values of the key column that the lines of the charts are split by; empty if they are not."""
    is_split = question.split and charts(reader.spec, question)
    return largest(reader, question, prefix, where, at_txid) if is_split else []


def largest(reader: Reader, question: Question, prefix: Key, where: Sequence[Filter], at_txid: int | None) -> list[Any]:
    """Return the values of the split column that have a line of their own: the largest ones by the first measure."""
    measure = next(column.measure for column in drawn_columns(reader.spec, question))
    first = {"order_by": measure, "descending": True, "limit": MOST_LINES - 1, "at_txid": at_txid}
    snapshot = _folded(reader, question, question.split, [measure], prefix, where, **first)
    return [group["key"][0] for group in snapshot.parsed()]


def _by_time(reader: Reader, question: Question, prefix: Key, where: Sequence[Filter], at_txid: int | None) -> Snapshot:
    measures = list(dict.fromkeys(column.measure for column in drawn_columns(reader.spec, question)))
    part, most = time_part(reader.spec, question), most_folded(reader.spec, measures)
    return _folded(reader, question, part, measures, prefix, where, limit=most, at_txid=at_txid)


def _folded(
    reader: Reader,
    question: Question,
    by: str,
    measures: Sequence[str],
    prefix: Key,
    where: Sequence[Filter],
    **asked: Any,
) -> Snapshot:
    """Return the keys of a question folded by a column: those of the newest times if all of them are too many."""
    most = most_folded(reader.spec, measures)

    def fold(conditions: Sequence[Filter]) -> Snapshot:
        return reader.groups((by,), prefix=prefix, where=conditions, most_folded=most, measures=measures, **asked)

    try:
        return fold(where)
    except RangeTooLargeError:
        newest = _newest(reader, question, prefix, where, most, asked["at_txid"])
        if newest is None:
            raise
        return fold([*where, newest])


def _newest(
    reader: Reader, question: Question, prefix: Key, where: Sequence[Filter], most: int, at_txid: int | None
) -> Filter | None:
    """Return the condition for the newest times that have no more than `most` keys together; None if one has more."""
    column = time_part(reader.spec, question)
    keys = reader.page(
        prefix=prefix,
        # Not by other conditions, because a fold also reads the keys that do not meet them.
        where=[each for each in where if each.column == column],
        order_by=column,
        descending=True,
        limit=most + 1,
        most_sorted=settings.TIDEGAUGE_SORT_MAX_KEYS,
        measures=[],
        at_txid=at_txid,
    ).parsed()
    times = [entry["key"][list(reader.spec.key).index(column)] for entry in keys]
    whole = [at for at in times if at != times[-1]]
    # Not `>` the last one, because a range of keys begins with its bound.
    return Filter(column, ">=", whole[-1]) if whole else None


def series_of(spec: StateSpec, question: Question, snapshot: Snapshot, until: datetime | None) -> dict[str, Any]:
    """Return the series of all groups by time. snapshot: the groups, in any order. until: as of `counted_until`."""
    times, groups = [], []
    for at, group in sorted(((_time(group), group) for group in snapshot.parsed()), key=itemgetter(0))[-MOST_TIMES:]:
        times.append(at)
        groups.append(group["value"])
    return {
        "txid": snapshot.txid,
        "times": [at.timestamp() for at in times],
        "series": {
            column.label: [_number(column.of(value)) for value in groups] for column in drawn_columns(spec, question)
        },
    } | _window(times, until)


def _time(group: dict[str, Any]) -> datetime:
    at = datetime.fromisoformat(group["key"][0])
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def drawn_columns(spec: StateSpec, question: Question) -> list[Column]:
    """Return the columns that have lines, in the order of the charts."""
    numbers = [column for column in columns(spec, question.measures or list(spec.measures)) if column.is_number]
    measures = list(dict.fromkeys(column.measure for column in numbers))[:MOST_CHARTS]
    return [column for column in numbers if column.measure in measures]


def _number(value: Any) -> float | None:
    return value if is_number(value) else None


def _window(times: Sequence[datetime], until: datetime | None) -> dict[str, Any]:
    """Return the range of the axis: from the first time to one step after the last. A step is the least gap.

    The last step is open if some of its events may not have been counted yet.
    """
    if not times:
        times = [datetime.now(UTC)]
    step = min((after - before for before, after in pairwise(times)), default=timedelta(hours=1))
    to = times[-1] + step
    is_open = until is None or until < to
    return {"from": times[0], "to": to, "step_seconds": step.total_seconds(), "is_open": is_open}
