"""The table of the explorer: the entries that match its question, with the columns that it names."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from tidegauge.state_backends import Snapshot, StateSpec
from tidegauge.state_backends.reader.bounds import orderable
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.api.groups import most_folded
from tidegauge.webapp.console.dashboard.entries import Bar, bars, end_of_page
from tidegauge.webapp.console.dashboard.explorer.columns import Column, columns
from tidegauge.webapp.console.dashboard.explorer.question import Question

# The column with the number of keys of a group. No measure can have this name.
KEYS = "number of keys"
TOP_BARS = 10


@dataclass(frozen=True)
class Heading:
    """direction: ascending, descending or none. address: to sort by it; empty if it cannot be sorted by."""

    label: str
    is_figure: bool
    direction: str
    address: str


@dataclass(frozen=True)
class Row:
    """cells: their HTML, written here because a template takes 20 µs for each. address: of the entries of a group."""

    key: list[Any]
    cells: SafeString
    address: str = ""


@dataclass(frozen=True)
class Table:
    """first: number of the first row, from 1. following: the address of the next page; empty on the last one.

    complete: False if a page by condition ended before it was full. txid, at: the batch that was read. bars: of the
    first rows, by the measure `ranked`, if that orders them. then: the earlier answer, if it is compared.
    """

    headings: list[Heading]
    rows: list[Row]
    first: int
    following: str
    complete: bool
    txid: int
    at: datetime | None
    bars: Sequence[Bar] = ()
    ranked: str = ""
    then: Snapshot | None = None

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1


def entries_table(
    reader: Reader, question: Question, prefix: Key, where: Sequence[Filter], at_txid: int | None
) -> Table:
    """Raises what `Reader.page` raises."""
    spec = reader.spec
    measures = question.shown_measures(spec)
    snapshot = reader.page(
        prefix=prefix,
        where=where,
        order_by=question.order_by,
        descending=question.descending,
        after=question.position,
        # One more than is shown, to know whether there is a next page.
        limit=question.limit + 1,
        most_sorted=settings.TIDEGAUGE_SORT_MAX_KEYS,
        measures=measures,
        at_txid=at_txid,
    )
    shown, found = columns(spec, measures), snapshot.parsed()[: question.limit]
    after = end_of_page(spec, snapshot, question.limit, question.order_by)
    return Table(
        headings(question, shown, list(orderable(spec))),
        [Row(entry["key"], cells(shown, entry["value"])) for entry in found],
        question.n + 1,
        question.address(after=after, n=question.n + len(found)) if after else "",
        snapshot.complete,
        snapshot.txid,
        snapshot.batch_time,
        *_ranked(shown, question, found),
    )


def _ranked(shown: Sequence[Column], question: Question, found: Sequence[dict[str, Any]]) -> tuple[Sequence[Bar], str]:
    """Return the bars of the first rows, and the label of their numbers; both empty if no number orders them."""
    by = next((column for column in shown if column.is_number and column.measure == question.order_by), None)
    if by is None or question.after:
        return (), ""
    return bars([(each["key"], by.of(each["value"]), None) for each in found[:TOP_BARS]]), by.label


def groups(
    reader: Reader,
    question: Question,
    prefix: Key,
    where: Sequence[Filter],
    at_txid: int | None,
    *,
    all_of_them: bool,
) -> Snapshot:
    """Return the groups of the table, or all of them, in its order. Raises what `Reader.groups` raises."""
    measures = question.shown_measures(reader.spec)
    most = most_folded(reader.spec, measures)
    return reader.groups(
        question.group,
        prefix=prefix,
        where=where,
        order_by=question.order_by,
        descending=question.descending,
        limit=most if all_of_them else question.limit,
        most_folded=most,
        measures=measures,
        at_txid=at_txid,
    )


def groups_table(spec: StateSpec, question: Question, snapshot: Snapshot) -> Table:
    found = snapshot.parsed()
    shown = columns(spec, question.shown_measures(spec))
    keys = Column(KEYS, "keys", is_number=True)
    rows = [
        Row(
            group["key"],
            cells([keys, *shown], group["value"] | {KEYS: group["keys"]}),
            question.within(group["key"]),
        )
        for group in found[: question.limit]
    ]
    complete = snapshot.complete and len(found) <= question.limit
    of_columns = headings(question, [keys, *shown], list(orderable(spec)))
    ranked = _ranked(shown, question, found)
    return Table(of_columns, rows, 1, "", complete, snapshot.txid, snapshot.batch_time, *ranked)


def cells(shown: Sequence[Column], value: Any) -> SafeString:
    texts = ((column.shown(column.of(value)),) for column in shown)
    return format_html_join("", '<td class="figure" data-live>{}</td>', texts)


def headings(question: Question, shown: Sequence[Column], sortable: Sequence[str]) -> list[Heading]:
    return [
        Heading(
            column.label,
            column.is_number,
            _direction(question, column),
            question.sorted_by(column.measure) if column.measure in sortable else "",
        )
        for column in shown
    ]


def _direction(question: Question, column: Column) -> str:
    if question.order_by != column.measure:
        return "none"
    return "descending" if question.descending else "ascending"
