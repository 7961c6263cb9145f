"""The tables of pipelines and of states, filtered and sorted by the query string of their pages.

By default, pipelines are sorted by verdict, the worst first, and states by name.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator

from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.state_summary import StateSummary
from tidegauge.webapp.catalog.verdicts import verdict, worst_first

# Rows per page of either table. Few, because on a phone each row is a card of several lines.
PAGE_ROWS = 25

PROBLEMS = "problems"

# What each column sorts by; None comes last in both directions.
PIPELINE_ORDERS: Mapping[str, Callable[[PipelineStatus], Any]] = {
    "name": lambda pipeline: pipeline.name,
    "lag": lambda pipeline: pipeline.lag_seconds,
    "rate": lambda pipeline: pipeline.rows_per_second,
    "rejected": lambda pipeline: pipeline.rejected_share,
    "txid": lambda pipeline: pipeline.committed_txid,
    "commit": lambda pipeline: pipeline.committed_at,
}
STATE_ORDERS: Mapping[str, Callable[[StateSummary], Any]] = {
    "name": lambda state: state.name,
    "pipeline": lambda state: (state.pipeline, state.name),
    "keys": lambda state: state.keys_estimate,
    "size": lambda state: state.bytes,
    "asof": lambda state: state.batch_time,
}


@dataclass(frozen=True)
class OverviewQuery:
    """The query string of the overview.

    q: part of a name or description. show: `problems` for the pipelines that need somebody, or empty for all. sort,
    states: what each table is sorted by, with `-` for descending. pipelines_page, states_page: numbers from 2, or empty
    for the first page.
    """

    q: str = ""
    show: str = ""
    sort: str = ""
    states: str = ""
    pipelines_page: str = ""
    states_page: str = ""

    @classmethod
    def parse(cls, asked: Mapping[str, str]) -> "OverviewQuery":
        """Read a query string; invalid parts are left out."""
        sort, states = asked.get("sort", ""), asked.get("states", "")
        return cls(
            q=asked.get("q", "").replace("\0", "").strip()[:200],
            show=PROBLEMS if asked.get("show") == PROBLEMS else "",
            sort=sort if sort.removeprefix("-") in PIPELINE_ORDERS else "",
            states=states if states.removeprefix("-") in STATE_ORDERS else "",
            pipelines_page=_page_number(asked.get("pipelines_page", "")),
            states_page=_page_number(asked.get("states_page", "")),
        )

    @property
    def parts(self) -> dict[str, str]:
        return {name: part for name, part in asdict(self).items() if part}

    @property
    def is_filtered(self) -> bool:
        return bool(self.q or self.show)

    def address(self, **changes: str) -> str:
        """Return the query string with some parts changed, for the first page of both tables."""
        return f"?{urlencode(replace(self, **{'pipelines_page': '', 'states_page': '', **changes}).parts)}"

    @property
    def with_problems(self) -> str:
        return self.address(show=PROBLEMS)

    @property
    def with_every_pipeline(self) -> str:
        return self.address(show="")

    @property
    def without_filter(self) -> str:
        return self.address(q="", show="")

    def has(self, *texts: str) -> bool:
        return any(self.q.lower() in text.lower() for text in texts)


@dataclass(frozen=True)
class Heading:
    """name: its id. direction: ascending, descending or none. address: of the page sorted by it; empty if none is."""

    label: str
    name: str = ""
    direction: str = "none"
    address: str = ""
    is_figure: bool = True


def shown_pipelines(
    query: OverviewQuery, pipelines: Iterable[PipelineStatus], needs: Collection[str]
) -> list[PipelineStatus]:
    """Return the pipelines that the filter leaves, the worst first. needs: the names of those that need somebody."""
    return [
        pipeline
        for pipeline in worst_first(pipelines)
        if query.has(pipeline.name, pipeline.description, *pipeline.states)
        and (not query.show or pipeline.name in needs)
    ]


def well_pipelines(query: OverviewQuery, shown: Iterable[PipelineStatus]) -> Page[PipelineStatus]:
    """Return a page of those without a problem."""
    well = [pipeline for pipeline in shown if not verdict(pipeline).is_problem]
    return Paginator(_sorted(well, query.sort, PIPELINE_ORDERS), PAGE_ROWS).get_page(query.pipelines_page)


def listed_pipelines(query: OverviewQuery, shown: list[PipelineStatus]) -> Page[PipelineStatus]:
    """Return a page of all that the filter leaves."""
    found = _sorted(shown, query.sort, PIPELINE_ORDERS)
    return Paginator(found, PAGE_ROWS).get_page(query.pipelines_page)


def shown_states(
    query: OverviewQuery, shown: Iterable[PipelineStatus], states: Iterable[StateSummary]
) -> Page[StateSummary]:
    """shown: the pipelines that the filter leaves."""
    of_shown = {pipeline.name for pipeline in shown}
    found = [
        state
        for state in states
        if query.has(state.name, state.pipeline, *state.key)
        and (not query.show or state.pipeline in of_shown or has_problem(state))
    ]
    return Paginator(_sorted(found, query.states, STATE_ORDERS), PAGE_ROWS).get_page(query.states_page)


def has_problem(state: StateSummary) -> bool:
    return bool(state.finding or state.warning or not state.fed)


def pipeline_headings(query: OverviewQuery) -> list[Heading]:
    return [
        _heading("Pipeline", "name", "sort", query, is_figure=False),
        Heading("Status", is_figure=False),
        Heading("Last 24 h", is_figure=False),
        _heading("Lag", "lag", "sort", query),
        _heading("Rows/s", "rate", "sort", query),
        Heading("Recent batches", is_figure=False),
        _heading("Rejected", "rejected", "sort", query),
        Heading("States"),
        _heading("Txid", "txid", "sort", query),
        _heading("Last commit", "commit", "sort", query),
    ]


def state_headings(query: OverviewQuery) -> list[Heading]:
    return [
        _heading("State", "name", "states", query, is_figure=False),
        _heading("Pipeline", "pipeline", "states", query, is_figure=False),
        Heading("Key", is_figure=False),
        Heading("Kind", is_figure=False),
        _heading("Keys", "keys", "states", query),
        _heading("Size", "size", "states", query),
        Heading("Txid"),
        _heading("As of", "asof", "states", query),
    ]


def _heading(label: str, name: str, part: str, query: OverviewQuery, *, is_figure: bool = True) -> Heading:
    """Return a heading that sorts: figures descending first, names ascending first, and then the reverse."""
    order = getattr(query, part)
    first, second = (f"-{name}", name) if is_figure else (name, f"-{name}")
    direction = "none"
    if order.removeprefix("-") == name:
        direction = "descending" if order.startswith("-") else "ascending"
    address = query.address(**{part: second if order == first else first})
    return Heading(label, f"{part}-{name}", direction, address, is_figure)


def _page_number(asked: str) -> str:
    return asked if re.fullmatch("[1-9][0-9]{0,5}", asked) and asked != "1" else ""


def _sorted(rows: list[Any], order: str, orders: Mapping[str, Callable[[Any], Any]]) -> list[Any]:
    """Sort by an order. Equal rows stay in the order in which they came."""
    if not order:
        return rows
    of = orders[order.removeprefix("-")]
    known = [row for row in rows if of(row) is not None]
    return sorted(known, key=of, reverse=order.startswith("-")) + [row for row in rows if of(row) is None]
