"""The explorer of a state: questions about its keys, each with its own address."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, JsonResponse
from django.utils.timezone import now
from django.views.decorators.http import require_safe
from rest_framework.exceptions import ParseError

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import UnknownStateError
from tidegauge.state_backends.reader.bounds import orderable
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.webapp.accounts.concurrency import SEARCHES, BusyError, TooManyAtOnceError, client_of
from tidegauge.webapp.accounts.permissions import KeyScope, OutsideError, key_scope
from tidegauge.webapp.api.parameters import SeriesParameters, read_range
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.batches import newest_batches
from tidegauge.webapp.catalog.documents import range_document
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.visible import Visible, of_request
from tidegauge.webapp.console.dashboard import api_panel
from tidegauge.webapp.console.dashboard.entries import REFUSED, UNAVAILABLE, time_columns
from tidegauge.webapp.console.dashboard.explorer import by_time
from tidegauge.webapp.console.dashboard.explorer.comparison import (
    Comparison,
    as_text,
    charts,
    compared,
    series_together,
)
from tidegauge.webapp.console.dashboard.explorer.history import HistoryCost, history_cost
from tidegauge.webapp.console.dashboard.explorer.moment import UnknownMomentError, batch_of
from tidegauge.webapp.console.dashboard.explorer.question import ROWS, Question
from tidegauge.webapp.console.dashboard.explorer.saved import saved_views
from tidegauge.webapp.console.dashboard.explorer.table import entries_table, groups, groups_table
from tidegauge.webapp.console.dashboard.explorer.then_and_now import compared_table, sides, steadily
from tidegauge.webapp.console.dashboard.pasted import pasted_prefix
from tidegauge.webapp.console.dashboard.time_charts import ShownRange
from tidegauge.webapp.console.dashboard.views.live import View, page, signed_in, state_page
from tidegauge.webapp.console.saved_views.models import Page
from tidegauge.webapp.console.sql.run import is_offered


@state_page
def explore(request, pipeline, version, name):
    reader = readers.reader(readers.connection(), name)
    question, busy = Question.parse(request.GET, reader.spec), None
    try:
        with SEARCHES.held(client_of(request)) if question.is_search else nullcontext():
            found = steadily(reader.spec, lambda: _answer(request, pipeline, reader, question))
    except (TooManyAtOnceError, BusyError) as error:
        version, found, busy = "", {"refusal": str(error)}, error
    except (*REFUSED, OutsideError, UnknownMomentError) as error:
        found = {"refusal": str(error)}
    except UNAVAILABLE:
        # No version, so that the next refresh reads the values again.
        version, found = "", {"is_unavailable": True}
    visible = of_request(request)
    shown = {
        "pipeline": pipeline,
        "state": visible.state(name),
        "saved": saved_views(
            request, visible, reader.spec, Page.EXPLORE, None if "refusal" in found else question.parameters
        ),
        "question": question,
        "conditions": [*question.where, ""],
        "choices": _choices(reader.spec, question.newest),
        "has_sql": is_offered(request),
        "history": _history(visible, reader.spec, question, now()),
        # Also for a question without charts, because the next one comes without loading the page again.
        "has_charts": bool(by_time.time_part(reader.spec, Question())),
    }
    asked = question.parameters | ({"drawn": found["drawn"]} if "drawn" in found and question.group else {})
    return page(request, "dashboard/explore.html", version, shown | found, asked, busy=busy)


def _answer(request: HttpRequest, pipeline: PipelineStatus, reader: Reader, question: Question) -> dict[str, Any]:
    prefix = key_scope(request).check_prefix(reader.spec, pasted_prefix(question.prefix, reader.spec))
    both = sides(reader, question, prefix, pipeline)
    where, at_txid = both.now
    part, found = by_time.time_part(reader.spec, question), None
    values = by_time.split_values(reader, question, prefix, where, at_txid) if part else []
    charts = by_time.charts(reader.spec, question, [*map(str, values), "other"] if values else [])
    drawn = by_time.drawn_as_of(pipeline, at_txid)
    # Read once for both, because the groups of the table are also the points of the charts.
    has_answer = bool(question.group and part and charts and not values) and request.GET.get("drawn") != drawn
    if both.then is not None:
        table, has_answer = compared_table(reader, question, prefix, both), False
    elif question.group:
        found = groups(reader, question, prefix, where, at_txid, all_of_them=has_answer)
        table = groups_table(reader.spec, question, found)
    else:
        table = entries_table(reader, question, prefix, where, at_txid)
    until = by_time.counted_until(pipeline, at_txid) if has_answer else None
    answer = by_time.series_of(reader.spec, question, found, until) if has_answer and found else None
    as_json = json.loads(json.dumps(list(prefix), default=str))
    return {
        "table": table,
        "as_of": at_txid,
        "covered": both.covered,
        "grouped_by": {name: reader.spec.key[name] for name in question.group},
        "by_time": part,
        "charts": charts,
        "drawn": drawn,
        "series_query": by_time.series_query(question, drawn, at_txid),
        "series_answer": answer and json.dumps(answer, cls=DjangoJSONEncoder),
        "snippets": api_panel.of_exploration(request, reader.spec, question, as_json, where, at_txid),
    }


def _history(visible: Visible, spec: StateSpec, question: Question, now: datetime) -> HistoryCost | None:
    """Return what keeping history would cost, where a question about the past needs it and the state keeps none."""
    needs_it = question.as_of or (question.than and not question.last)
    if not needs_it or spec.changelog or spec.kind == "non_transactional":
        return None
    state = visible.state(spec.name)
    return history_cost(state, newest_batches(state.pipeline), now)


def series_of_charts(view: Callable[[HttpRequest, KeyScope, Reader], dict[str, Any]]) -> View:
    """Answer in JSON with what `view(request, scope, reader)` returns for the charts of a state, or why it refuses."""

    @wraps(view)
    def answered(request: HttpRequest, name: str) -> JsonResponse:
        scope = key_scope(request)
        try:
            scope.check_state(name)
            return JsonResponse(view(request, scope, readers.reader(readers.connection(), name)))
        except (UnknownStateError, OutsideError):
            return JsonResponse({"detail": f"no state {name!r} with these keys"}, status=404)
        except (*REFUSED, ParseError) as error:
            return JsonResponse({"detail": str(error)}, status=400)
        except (TooManyAtOnceError, BusyError) as error:
            retry = {"Retry-After": str(error.wait)}
            return JsonResponse({"detail": str(error)}, status=error.status_code, headers=retry)
        except UNAVAILABLE:
            return JsonResponse({"detail": "the values are unavailable at present"}, status=503)

    return require_safe(signed_in(answered))


@series_of_charts
def time_series(request, scope, reader):
    """The series of the charts of a state with a time in its key."""
    question = Question.parse(request.GET, reader.spec)
    if not by_time.time_part(reader.spec, question):
        raise ParseError("the key has no time to draw charts by")
    prefix = scope.check_prefix(reader.spec, pasted_prefix(question.prefix, reader.spec))
    pipeline = of_request(request).pipeline_of(reader.spec.name)
    with SEARCHES.held(client_of(request)):
        both = sides(reader, question, prefix, pipeline)
        until = by_time.counted_until(pipeline, both.now[1])
        values = by_time.split_values(reader, question, prefix, *both.now)
        return by_time.series_by_time(reader, question, prefix, *both.now, until, values)


@state_page
def compare(request, pipeline, version, name):
    reader = readers.reader(readers.connection(), name)
    shown_range = ShownRange.of_pipeline(request.GET, pipeline)
    comparison = Comparison()
    try:
        comparison = Comparison.parse(request.GET, reader.spec)
        found = _compared(request, pipeline, reader, comparison)
    except (*REFUSED, OutsideError, UnknownMomentError) as error:
        found = {"refusal": str(error)}
    except UNAVAILABLE:
        # No version, so that the next refresh reads the values again.
        version, found = "", {"is_unavailable": True}
    visible = of_request(request)
    asked = comparison.parameters | shown_range.query
    can_save = comparison.keys and "refusal" not in found
    shown = {
        "pipeline": pipeline,
        "state": visible.state(name),
        "saved": saved_views(request, visible, reader.spec, Page.COMPARE, asked if can_save else None),
        "comparison": comparison,
        "chosen": list(map(as_text, comparison.keys)),
        "choices": _choices(reader.spec),
        "range": shown_range,
    }
    # The keys as typed, so that a refresh after an invalid key shows the same refusal again.
    sent = asked | {"key": request.GET.getlist("key"), "view": request.GET.get("view", "")}
    return page(request, "dashboard/compare.html", version, shown | found, sent)


def _compared(request: HttpRequest, pipeline: PipelineStatus, reader: Reader, asked: Comparison) -> dict[str, Any]:
    if not asked.keys:
        return {}
    key_scope(request).check_keys(reader.spec, asked.keys)
    at_txid, than = batch_of(asked.as_of, pipeline), batch_of(asked.than, pipeline)
    found = compared(reader, asked, at_txid, than)
    keys = [key for key, _ in found.keys]
    return {
        "compared": found,
        "charts": charts(asked, reader.spec),
        "series_query": urlencode({"key": list(map(as_text, keys)), "measures": ",".join(asked.measures)}, doseq=True),
        "snippets": api_panel.of_keys(request, reader.spec, keys, at_txid, asked.measures),
    }


@series_of_charts
def compare_series(request, scope, reader):
    """The series of the charts of a comparison."""
    comparison = Comparison.parse(request.GET, reader.spec)
    scope.check_keys(reader.spec, comparison.keys)
    given = ("from", "to", "last", "points")
    span = read_range(SeriesParameters.read({part: request.GET[part] for part in given if part in request.GET}))
    return series_together(reader, comparison, span) | range_document(span)


def _choices(spec: StateSpec, newest: str = "") -> dict[str, Any]:
    """Return the choices that the form offers. newest: the column of the default order, if that is a time."""
    orders = [("", "newest first"), (newest, "oldest first")] if newest else [("", "key order")]
    for name in orderable(spec):
        orders += [(f"-{name}", f"{name}, largest first"), (name, f"{name}, smallest first")]
    times = time_columns(spec)
    drawn = by_time.time_part(spec, Question())
    return {
        "orders": orders,
        "rows": ROWS,
        "measures": list(spec.measures),
        "example": next(iter(orderable(spec)), ""),
        "has_time": bool(times and spec.measures),
        "splits": [name for name in spec.key if drawn and name != drawn],
    }
