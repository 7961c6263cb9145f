"""Compares keys side by side: their values at one batch or at two, and over time."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from django.http import QueryDict
from django.utils.safestring import SafeString

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import KeyShapeError
from tidegauge.state_backends.reader.reader import Reader, Snapshot
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.api.series import series_of
from tidegauge.webapp.catalog.series import TimeRange
from tidegauge.webapp.console.dashboard.entries import is_number
from tidegauge.webapp.console.dashboard.explorer.columns import Column, columns
from tidegauge.webapp.console.dashboard.ordered_query import clean, some_of
from tidegauge.webapp.console.dashboard.pasted import pasted_keys
from tidegauge.webapp.console.dashboard.time_charts import MOST_LINES, Chart, adds_up

MOST_KEYS = MOST_LINES
MOST_CHARTS = 6


@dataclass(frozen=True)
class Comparison:
    """keys: typed. measures: those shown; empty for all. as_of, than: a batch or a time, as typed. An empty `as_of`
    means the latest batch, an empty `than` no comparison with another batch."""

    keys: tuple[Key, ...] = ()
    measures: tuple[str, ...] = ()
    as_of: str = ""
    than: str = ""

    @classmethod
    def parse(cls, asked: QueryDict, spec: StateSpec) -> Self:
        """Raises KeyShapeError for a text that is not a key, and for too many keys."""
        lines = [line for text in asked.getlist("key")[: MOST_KEYS + 1] for line in pasted_keys(text[:2_000], spec)]
        for line in lines:
            if line.key is None:
                raise KeyShapeError(f"{line.text[:80]!r}: {line.error}")
        keys = tuple(dict.fromkeys(line.key for line in lines if line.key is not None))
        if len(keys) > MOST_KEYS:
            raise KeyShapeError(f"{len(keys)} keys are more than the {MOST_KEYS} that can be compared; leave some out")
        return cls(
            keys,
            some_of(list(spec.measures), asked.getlist("measures")),
            clean(asked.get("as_of", "")),
            clean(asked.get("than", "")),
        )

    @property
    def parameters(self) -> dict[str, Any]:
        parts = {"key": list(map(as_text, self.keys)), "measures": ",".join(self.measures)}
        parts |= {"as_of": self.as_of, "than": self.than}
        return {name: part for name, part in parts.items() if part}

    def shown(self, spec: StateSpec) -> list[Column]:
        return columns(spec, self.measures or list(spec.measures) or ["value"])


@dataclass(frozen=True)
class Cell:
    """now: the value. then: at the batch compared with. change: from then to now. Both are empty without that batch."""

    now: str | SafeString
    then: str | SafeString = ""
    change: str = ""


@dataclass(frozen=True)
class Compared:
    """keys: as in JSON, each with its status. rows: the label of a column, and a cell for each key."""

    keys: list[tuple[list[Any], str]]
    rows: list[tuple[str, list[Cell]]]
    now: Snapshot
    then: Snapshot | None


def compared(reader: Reader, comparison: Comparison, at_txid: int | None, than: int | None) -> Compared:
    """than: the batch to compare with; None for none. Raises what `Reader.multi_get` raises."""
    shown = comparison.shown(reader.spec)
    measures = list(dict.fromkeys(column.measure for column in shown))
    now = reader.multi_get(comparison.keys, measures, at_txid=at_txid)
    then = None if than is None else reader.multi_get(comparison.keys, measures, at_txid=than)
    later = now.parsed()
    earlier = [None] * len(later) if then is None else then.parsed()
    pairs = list(zip(later, earlier, strict=True))
    rows = [(column.label, [_cell(column, *pair) for pair in pairs]) for column in shown]
    return Compared([(answer["key"], answer["status"]) for answer in later], rows, now, then)


def charts(comparison: Comparison, spec: StateSpec) -> list[Chart]:
    """Return a chart for each column with numbers, with a line for each key."""
    drawn = [column for column in comparison.shown(spec) if column.is_number][:MOST_CHARTS]
    names = [" · ".join(map(str, key)) or "all" for key in comparison.keys]
    return [
        Chart(
            f"column-{place}",
            column.label,
            "",
            [(f"{number} {_series_name(column)}", name) for number, name in enumerate(names)],
            form="steps",
            from_zero=adds_up(spec, column.measure),
        )
        for place, column in enumerate(drawn)
    ]


def series_together(reader: Reader, comparison: Comparison, span: TimeRange) -> dict[str, Any]:
    """Return the series of all keys at common times, named by the index of the key and the measure."""
    measures = list(dict.fromkeys(column.measure for column in comparison.shown(reader.spec) if column.is_number))
    found = [series_of(reader, key, measures, span)[1] for key in comparison.keys]
    times = sorted({at for each in found for at in each["times"]})
    return {
        "times": times,
        "series": {
            f"{place} {name}": _held(each["times"], values, times)
            for place, each in enumerate(found)
            for name, values in each["series"].items()
        },
    }


def as_text(key: Sequence[Any]) -> str:
    return json.dumps(list(key), default=str, ensure_ascii=False)


def _series_name(column: Column) -> str:
    return f"{column.measure}.{column.member}" if column.member else column.measure


def _held(times: Sequence[float], values: Sequence[float | None], wanted: Sequence[float]) -> list[float | None]:
    """Return the values at other times: each holds until the next one."""
    places = (bisect_right(times, at) for at in wanted)
    return [values[place - 1] if place else None for place in places]


def _cell(column: Column, later: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> Cell:
    now = column.of(later["value"])
    if earlier is None:
        return Cell(column.shown(now))
    then = column.of(earlier["value"])
    return Cell(column.shown(now), column.shown(then), _change(then, now) if column.is_number else "")


def _change(then: Any, now: Any) -> str:
    if not (is_number(then) and is_number(now)):
        return ""
    if now == then:
        return "unchanged"
    share = f" ({(now - then) / abs(then):+,.1%})".replace("%", " %") if then else ""
    return f"{now - then:+,.10g}{share}".replace("-", "−")  # noqa: RUF001
