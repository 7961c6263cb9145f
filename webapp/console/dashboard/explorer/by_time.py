"""Charts of a state with a time in its key: the entries that match a question, folded by this time."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any

from tidegauge.state_backends import Snapshot, StateSpec
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.api.groups import most_folded
from tidegauge.webapp.console.dashboard.entries import is_number
from tidegauge.webapp.console.dashboard.explorer.columns import Column, columns
from tidegauge.webapp.console.dashboard.explorer.question import Question
from tidegauge.webapp.console.dashboard.time_charts import MOST_LINES, Chart

MOST_CHARTS = 4
MOST_TIMES = 1_000
# An open page reads the charts again after this time, if there was a commit.
AGAIN_SECONDS = 10


def time_part(spec: StateSpec, question: Question) -> str:
    """Return the key column of the time axis; empty if there is none, or if the question groups by others."""
    times = [name for name, sql_type in spec.key.items() if sql_type == "timestamptz"]
    return times[0] if times and spec.measures and question.group in ((), (times[0],)) else ""


def charts(spec: StateSpec, question: Question) -> list[Chart]:
    """Return a chart for each measure with numbers, with a line for each of its columns."""
    lines: dict[str, list[tuple[str, str]]] = {}
    for column in _columns(spec, question):
        lines.setdefault(column.measure, []).append((column.label, column.label))
    return [Chart(f"by-time-{place}", name, "", lines[name][:MOST_LINES], "steps") for place, name in enumerate(lines)]


def series_by_time(reader: Reader, question: Question, prefix: Key, at_txid: int | None) -> dict[str, Any]:
    """Return the newest times, and the values of each column at them. Raises what `Reader.groups` raises."""
    spec = reader.spec
    part = time_part(spec, question)
    measures = list(dict.fromkeys(column.measure for column in _columns(spec, question)))
    most = most_folded(spec, measures)
    snapshot = reader.groups(
        (part,),
        prefix=prefix,
        where=question.conditions,
        limit=most,
        most_folded=most,
        measures=measures,
        at_txid=at_txid,
    )
    return series_of(spec, question, snapshot)


def series_of(spec: StateSpec, question: Question, snapshot: Snapshot) -> dict[str, Any]:
    """Return the series of all groups by time. snapshot: the groups, in any order."""
    times, groups = [], []
    for at, group in sorted(((_time(group), group) for group in snapshot.parsed()), key=itemgetter(0))[-MOST_TIMES:]:
        times.append(at)
        groups.append(group["value"])
    return {
        "txid": snapshot.txid,
        "times": [at.timestamp() for at in times],
        "series": {
            column.label: [_number(column.of(value)) for value in groups] for column in _columns(spec, question)
        },
    } | _window(times)


def _time(group: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(group["key"][0])


def _columns(spec: StateSpec, question: Question) -> list[Column]:
    numbers = [column for column in columns(spec, question.measures or list(spec.measures)) if column.is_number]
    measures = list(dict.fromkeys(column.measure for column in numbers))[:MOST_CHARTS]
    return [column for column in numbers if column.measure in measures]


def _number(value: Any) -> float | None:
    return value if is_number(value) else None


def _window(times: Sequence[datetime]) -> dict[str, Any]:
    """Return the range of the axis: from the first time to one step after the last. A step is the least gap."""
    if not times:
        times = [datetime.now(UTC)]
    step = min((after - before for before, after in pairwise(times)), default=timedelta(hours=1))
    return {"from": times[0], "to": times[-1] + step, "step_seconds": step.total_seconds()}
