"""Saved views of the explorer: which parts of a question are stored, and which views the page of a state shows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.reader.bounds import comparable
from tidegauge.state_backends.reader.filters import check_where
from tidegauge.webapp.accounts.permissions import OutsideError, key_scope
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.visible import Visible
from tidegauge.webapp.console.dashboard.entries import REFUSED
from tidegauge.webapp.console.dashboard.explorer.comparison import Comparison
from tidegauge.webapp.console.dashboard.explorer.moment import UnknownMomentError, batch_of
from tidegauge.webapp.console.dashboard.explorer.question import Question
from tidegauge.webapp.console.dashboard.ordered_query import clean
from tidegauge.webapp.console.dashboard.pasted import pasted_prefix
from tidegauge.webapp.console.dashboard.time_charts import ShownRange
from tidegauge.webapp.console.saved_views.models import Page, SavedView
from tidegauge.webapp.console.saved_views.selectors import visible_views

# Views shown on the page of a state; the page of saved views lists all.
MOST_SHOWN = 8

WORDS = {
    "measures": "columns",
    "as_of": "as of",
    "than": "compared with",
    "last": "the last",
    "split": "charts split by",
    "range": "the last",
    "from": "from",
    "to": "to",
}


class UnanswerableError(Exception):
    """A question cannot be answered, so it is not stored."""


@dataclass(frozen=True)
class SavedViews:
    """The views of a state, as its explorer shows them.

    query: the query string with which the page's question is saved; None if it cannot be saved. opened: the view that
    the address names. is_changed: whether the page now asks another question. gone: the columns that the view names and
    the state no longer has. more: whether there are more views.
    """

    query: str | None
    views: Sequence[SavedView]
    more: bool
    opened: SavedView | None = None
    is_changed: bool = False
    gone: Sequence[str] = ()


def saved_views(
    request: HttpRequest, visible: Visible, spec: StateSpec, page: Page, asked: Mapping[str, Any] | None
) -> SavedViews:
    """asked: the parameters of the page; None if they cannot be saved."""
    of_state = visible_views(request.user, visible).filter(state=spec.name)
    found = list(of_state[: MOST_SHOWN + 1])
    views, more = found[:MOST_SHOWN], len(found) > MOST_SHOWN
    question = None if asked is None else stored(asked)
    query = None if question is None else f"?{urlencode(question, doseq=True)}"
    opened = of_state.filter(pk=clean(request.GET["view"]), page=page).first() if request.GET.get("view") else None
    if opened is None:
        return SavedViews(query, views, more)
    if opened not in views:
        views = [*views[:-1], opened]
    is_changed = question not in (None, opened.question)
    return SavedViews(query, views, more, opened, is_changed, gone_columns(opened.question, spec))


def stored(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a page that are stored: all but the position in a table and the opened view."""
    parts = {name: part for name, part in asked.items() if name not in ("after", "n", "view")}
    # Lists, because this is compared with a stored question, which went through JSON.
    return {name: list(part) if isinstance(part, tuple) else part for name, part in parts.items()}


def question_to_store(request: HttpRequest, page: Page, spec: StateSpec, pipeline: PipelineStatus) -> dict[str, Any]:
    """Return the parameters to store for the question of a request. Raises UnanswerableError with the reason."""
    try:
        return stored((_comparison if page == Page.COMPARE else _exploration)(request, spec, pipeline))
    except (*REFUSED, OutsideError, UnknownMomentError) as error:
        raise UnanswerableError(str(error)) from error


def _exploration(request: HttpRequest, spec: StateSpec, pipeline: PipelineStatus) -> dict[str, Any]:
    question = Question.parse(request.GET, spec)
    check_where(spec, question.conditions)
    key_scope(request).check_prefix(spec, pasted_prefix(question.prefix, spec))
    batch_of(question.as_of, pipeline)
    return question.parameters


def _comparison(request: HttpRequest, spec: StateSpec, pipeline: PipelineStatus) -> dict[str, Any]:
    comparison = Comparison.parse(request.GET, spec)
    if not comparison.keys:
        raise UnanswerableError("there is no key to compare; add one first")
    key_scope(request).check_keys(spec, comparison.keys)
    batch_of(comparison.as_of, pipeline)
    batch_of(comparison.than, pipeline)
    return comparison.parameters | ShownRange.parse(request.GET).query


def gone_columns(question: Mapping[str, Any], spec: StateSpec) -> list[str]:
    """Return the columns that a stored question shows, groups by or is ordered by, but that the state does not have.

    Those of conditions are not included, because the page refuses such a question and names them.
    """
    named: list[tuple[str, Collection[str]]] = [
        *((name, spec.measures) for name in str(question.get("measures", "")).split(",")),
        *((name, spec.key) for name in question.get("group", [])),
        (str(question.get("order", "")).removeprefix("-"), comparable(spec)),
    ]
    return list(dict.fromkeys(name for name, columns in named if name and name not in columns))


def summary(question: Mapping[str, Any]) -> list[str]:
    """Describe a stored question in words, one text for each part; empty for all keys in key order."""
    parts = [f"keys from {question['prefix']}"] if "prefix" in question else []
    parts += question.get("where", [])
    if "key" in question:
        parts.append(f"compare {', '.join(question['key'])}")
    if "group" in question:
        parts.append(f"by {', '.join(question['group'])}")
    if order := question.get("order"):
        parts.append(f"{order.removeprefix('-')}, {'largest' if order.startswith('-') else 'smallest'} first")
    named = ((word, question[name]) for name, word in WORDS.items() if name in question)
    return parts + [f"{word} {part.replace(',', ', ')}" for word, part in named]
