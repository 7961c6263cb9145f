"""The API panel: the API request for what a page shows, which can be run in place, and programs that send it."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.webapp.catalog import snippets
from tidegauge.webapp.catalog.programs import Server
from tidegauge.webapp.catalog.snippets import Snippets, Wanted
from tidegauge.webapp.console.dashboard.entries import PAGE_ENTRIES, EntriesQuery
from tidegauge.webapp.console.dashboard.explorer.question import Question
from tidegauge.webapp.console.dashboard.time_charts import ShownRange

# Nobody reads longer programs.
MOST_KEYS = 100


def of_entries(request: HttpRequest, spec: StateSpec, query: EntriesQuery, prefix: Sequence[Any]) -> Snippets:
    """Return the programs that list the entries of a page, from the first page on. prefix: its parts as in JSON."""
    where, measures = [query.where] if query.where else [], query.shown_measures(spec) if query.measures else ()
    wanted = Wanted(
        query.sorted, where, query.as_of, limit=PAGE_ENTRIES, prefix=prefix, search=query.q, measures=measures
    )
    return snippets.entries(_server(request), spec, wanted)


def of_exploration(
    request: HttpRequest,
    spec: StateSpec,
    question: Question,
    prefix: Sequence[Any],
    where: Sequence[Filter],
    at_txid: int | None,
) -> Snippets:
    """Return the programs that list the entries of the explorer, from the first page on, or its groups.

    prefix: its parts as in JSON. where: the conditions, of which the first ones are those of the question.
    """
    measures = question.shown_measures(spec) if question.measures else ()
    more = (f"{each.column}{each.operator}{each.value}" for each in where[len(question.where) :])
    wanted = Wanted(
        question.sorted, [*question.where, *more], at_txid, limit=question.limit, prefix=prefix, measures=measures
    )
    if question.group:
        return snippets.groups(_server(request), spec, question.group, wanted)
    return snippets.entries(_server(request), spec, wanted)


def of_keys(
    request: HttpRequest,
    spec: StateSpec,
    keys: Sequence[Sequence[Any]],
    at_txid: int | None = None,
    measures: Sequence[str] = (),
) -> Snippets | None:
    """Return the programs that look up these keys: with column names if there are none; None if there are too many."""
    if len(keys) > MOST_KEYS:
        return None
    wanted = keys or [[f"<{column}>" for column in spec.key]]
    return snippets.lookup(_server(request), spec, wanted, measures, at_txid)


def of_key(request: HttpRequest, spec: StateSpec, key: Sequence[Any]) -> Snippets:
    """Return the programs that read one existing key."""
    return snippets.one_key(_server(request), spec, key)


def of_pipeline(request: HttpRequest, pipeline: str, shown: ShownRange) -> Snippets:
    """Return the programs that read the series of a pipeline's charts."""
    return snippets.pipeline_series(_server(request), pipeline, shown.asked)


def of_key_chart(
    request: HttpRequest, spec: StateSpec, key: Sequence[Any], measure: str, shown: ShownRange
) -> Snippets:
    """Return the programs that read the series of a key's chart."""
    return snippets.key_series(_server(request), spec, key, [measure], shown.asked)


def of_batches(request: HttpRequest, pipeline: str, limit: int) -> Snippets:
    """Return the programs that list the newest batches."""
    return snippets.batches(_server(request), pipeline, limit)


def _server(request: HttpRequest) -> Server:
    return Server(request.build_absolute_uri("/").rstrip("/"))
