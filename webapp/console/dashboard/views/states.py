"""The pages of a state: its schema, top keys and entries; one key with its versions; a pasted list of keys."""

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.errors import (
    KeyShapeError,
    RangeTooLargeError,
    UnknownStateError,
)
from tidegauge.state_backends.reader.filters import check_where
from tidegauge.state_backends.reader.reader import Reader
from tidegauge.state_backends.spec.row import Key
from tidegauge.webapp.accounts.concurrency import SEARCHES, BusyError, TooManyAtOnceError, client_of
from tidegauge.webapp.accounts.permissions import KeyScope, OutsideError, key_scope
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.pipeline_status import PipelineStatus
from tidegauge.webapp.catalog.snippets import Snippets
from tidegauge.webapp.catalog.visible import of_request
from tidegauge.webapp.console.dashboard import api_panel, entries
from tidegauge.webapp.console.dashboard.entries import REFUSED, UNAVAILABLE, EntriesQuery, cells, number_measures
from tidegauge.webapp.console.dashboard.explorer import by_time
from tidegauge.webapp.console.dashboard.explorer.movers import KEYS_PER_ROW, movers
from tidegauge.webapp.console.dashboard.explorer.question import Question
from tidegauge.webapp.console.dashboard.keys import TooManyKeysError, history, look_up_pasted, read_key
from tidegauge.webapp.console.dashboard.lineage import lineage
from tidegauge.webapp.console.dashboard.pasted import pasted_prefix, whole_number
from tidegauge.webapp.console.dashboard.time_charts import ShownRange, value_chart
from tidegauge.webapp.console.dashboard.views.live import page, signed_in, state_page, static_page, unknown_state

# Characters. Proxies accept request lines of at least 8 KiB.
MAX_ADDRESS = 4_000

QUERY_PARTS = ("q", "prefix", "where", "order", "by", "measures", "as_of", "after", "n")


@state_page
def schema(request, pipeline, version, name):
    shown = {"pipeline": pipeline, "state": of_request(request).state(name), "lineage": lineage(request, state=name)}
    return page(request, "dashboard/state_schema.html", version, shown)


@state_page
def state_api(request, pipeline, version, name):
    """The programs that read what the tab with the data shows, whose query string this page takes, too."""
    reader = readers.reader(readers.connection(), name)
    query = EntriesQuery.parse(request.GET, reader.spec)
    try:
        entries_of = _entries_snippets(request, reader.spec, query)
    except (*REFUSED, OutsideError):
        entries_of = None
    shown = {
        "pipeline": pipeline,
        "state": of_request(request).state(name),
        "is_search": entries_of is not None,
        "snippets": entries_of or api_panel.of_keys(request, reader.spec, _one_key(reader, key_scope(request))),
    }
    return page(request, "dashboard/state_api.html", version, shown, _asked(request, query))


def _entries_snippets(request: HttpRequest, spec: StateSpec, query: EntriesQuery) -> Snippets | None:
    """Return the programs for the entries of a search, filter or batch; None without any. Raises what reading does."""
    if not (spec.key and (query.is_filtered or query.is_search or query.as_of is not None)):
        return None
    check_where(spec, query.conditions)
    prefix = key_scope(request).check_prefix(spec, pasted_prefix(query.prefix, spec))
    return api_panel.of_entries(request, spec, query, json.loads(json.dumps(list(prefix), default=str)))


def _one_key(reader: Reader, scope: KeyScope) -> list[list[Any]]:
    """Return a key that exists, as an example; none if there is none, or if the values cannot be read."""
    if not reader.spec.key:
        return []
    try:
        prefix = scope.check_prefix(reader.spec, ())
        return [each["key"] for each in reader.page(prefix=prefix, limit=1, measures=[]).parsed()]
    except (*REFUSED, *UNAVAILABLE, OutsideError):
        return []


@state_page
def state(request, pipeline, version, name):
    reader = readers.reader(readers.connection(), name)
    query, busy = EntriesQuery.parse(request.GET, reader.spec), None
    try:
        with SEARCHES.held(client_of(request)) if query.is_search else nullcontext():
            values = _values(reader, query, key_scope(request), pipeline)
    except (TooManyAtOnceError, BusyError) as error:
        version, values, busy = "", {"query": query, "refusal": str(error)}, error
    except UNAVAILABLE:
        # No version, so that the next refresh reads the values again.
        version, values = "", {"query": query, "is_unavailable": True}
    moved = values.get("movers")
    shown = {
        "pipeline": pipeline,
        "state": of_request(request).state(name),
        "is_json": not reader.spec.measures,
        "choices": {"measures": list(reader.spec.measures)} if reader.spec.key else {},
        "has_charts": bool(by_time.time_part(reader.spec, Question())),
    }
    rows = moved.keys // KEYS_PER_ROW if moved else 0
    return page(request, "dashboard/state.html", version, shown | values, _asked(request, query), rows=rows, busy=busy)


def _asked(request: HttpRequest, query: EntriesQuery) -> dict[str, str]:
    """Return the parts of the query string that a refresh sends."""
    asked = {part: request.GET[part] for part in QUERY_PARTS if request.GET.get(part)}
    return asked | ({"measures": ",".join(query.measures)} if query.measures else {})


def _values(reader: Reader, query: EntriesQuery, scope: KeyScope, pipeline: PipelineStatus) -> dict[str, Any]:
    try:
        if not reader.spec.key:
            return {"query": query, "figures": entries.global_value(reader, query.as_of)}
        prefix = scope.check_prefix(reader.spec, pasted_prefix(query.prefix, reader.spec))
        shown = _entries(reader, query, prefix)
        return shown | (_by_time(reader.spec, query, pipeline) or _first_keys(reader, query, prefix, pipeline))
    except (*REFUSED, OutsideError) as error:
        return {"query": query, "refusal": str(error)}


def _entries(reader: Reader, query: EntriesQuery, prefix: Key) -> dict[str, Any]:
    try:
        found = entries.entries_page(reader, query, prefix)
    except RangeTooLargeError:
        if query.order:
            raise
        # So many keys cannot be sorted by their time.
        query = replace(query, newest="")
        found = entries.entries_page(reader, query, prefix)
    return {
        "query": query,
        "entries": found,
        "columns": query.shown_measures(reader.spec),
        "measure": next(iter(number_measures(reader.spec)), ""),
        "exports": query.export(prefix),
    }


def _by_time(spec: StateSpec, query: EntriesQuery, pipeline: PipelineStatus) -> dict[str, Any]:
    """Return the charts of a state with a time in its key; empty without them."""
    where = (query.where,) if query.where else ()
    question = Question(prefix=query.prefix, where=where, measures=query.measures or tuple(query.shown_measures(spec)))
    charts = by_time.charts(spec, question) if by_time.time_part(spec, question) else []
    drawn = by_time.drawn_as_of(pipeline, query.as_of)
    if not charts:
        return {}
    shown_query = by_time.series_query(question, drawn, query.as_of)
    return {"by_time": by_time.time_part(spec, question), "charts": charts, "series_query": shown_query}


def _first_keys(reader: Reader, query: EntriesQuery, prefix: Key, pipeline: PipelineStatus) -> dict[str, Any]:
    """Return the keys that have moved most by one of the measures shown, if there is a history, and the largest."""
    measures = [name for name in query.shown_measures(reader.spec) if name in number_measures(reader.spec)]
    measure = query.by or next(iter(measures), "")
    if not measure:
        return {}
    try:
        top_keys = entries.top_keys(reader, query, prefix, measure)
    except RangeTooLargeError as error:
        return {"not_ranked": str(error)}
    has_history = reader.spec.changelog and query.as_of is None
    moved = movers(reader, pipeline, measure, prefix, query.conditions) if has_history else None
    return {"measures": measures, "measure": measure, "top_keys": top_keys, "movers": moved}


@state_page
def key(request, pipeline, version, name):
    reader = readers.reader(readers.connection(), name)
    asked = {part: request.GET[part] for part in ("key", "by", "before") if request.GET.get(part)}
    shown_range = ShownRange.of_pipeline(request.GET, pipeline)
    try:
        values = _versions(reader, asked, key_scope(request))
    except (KeyShapeError, OutsideError) as error:
        values = {"refusal": str(error), "asked_key": asked.get("key", "")}
    except UNAVAILABLE:
        version, values = "", {"is_unavailable": True}
    found = values.get("key", [])
    if values.get("chart"):
        values["chart_snippets"] = api_panel.of_key_chart(request, reader.spec, found, values["measure"], shown_range)
    # By lookup, because the API's call for one key answers 404 for a key that does not exist.
    programs = api_panel.of_keys(request, reader.spec, [found] if found else [])
    if values.get("status") == "found":
        programs = api_panel.of_key(request, reader.spec, found)
    shown = {
        "pipeline": pipeline,
        "state": of_request(request).state(name),
        "is_json": not reader.spec.measures,
        "snippets": programs,
        "range": shown_range,
    }
    return page(request, "dashboard/key.html", version, shown | values, asked | shown_range.query)


def _versions(reader: Reader, asked: dict[str, str], scope: KeyScope) -> dict[str, Any]:
    typed = read_key(asked.get("key", "[]"), reader.spec)
    scope.check_keys(reader.spec, [typed])
    snapshot = reader.multi_get([typed])
    answer = snapshot.parsed()[0]
    past = history(reader, typed, whole_number(asked.get("before", "")))
    measures = number_measures(reader.spec)
    measure = asked["by"] if asked.get("by") in measures else next(iter(measures), "")
    return {
        "key": answer["key"],
        "key_json": json.dumps(answer["key"]),
        "status": answer["status"],
        "cells": cells(reader.spec, answer["value"]),
        "until": snapshot.until,
        "history": past,
        "names": list(reader.spec.measures) or ["value"],
        "measures": measures,
        "measure": measure,
        "chart": value_chart(reader.spec, measure) if measure and past.versions else None,
        "series_query": urlencode({"key": json.dumps(answer["key"]), "measures": measure}),
        "is_first": "before" not in asked,
    }


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def lookup(request, name):
    """Look up a pasted list, at an address that can be shared. A list too long for an address is answered directly."""
    sent = request.POST if request.method == "POST" else request.GET
    text, asked_batch = sent.get("keys", ""), sent.get("as_of", "")
    if request.method != "POST" and not text.strip():
        return redirect(f"{reverse('dashboard:state', args=[name])}#lookup")
    address = f"{request.path}?{urlencode({'keys': text} | ({'as_of': asked_batch} if asked_batch else {}))}"
    if request.method == "POST" and len(address) <= MAX_ADDRESS:
        return redirect(address)
    scope = key_scope(request)
    try:
        state = of_request(request).state(name)
        reader = readers.reader(readers.connection(), name)
    except (UnknownStateError, OutsideError):
        return unknown_state(request, name)
    shown: dict[str, Any] = {"text": text, "as_of": asked_batch, "is_shared": request.method != "POST"}
    try:
        at_txid = whole_number(asked_batch)
        found = look_up_pasted(reader, text, scope, limit=settings.TIDEGAUGE_LOOKUP_MAX_KEYS, at_txid=at_txid)
        keys = [line.key for line in found.lines if line.status != "invalid"]
        shown |= {"lookup": found, "snippets": api_panel.of_keys(request, reader.spec, keys, at_txid)}
    except (*REFUSED, OutsideError, TooManyKeysError) as error:
        shown["refusal"] = str(error)
    except UNAVAILABLE:
        shown["is_unavailable"] = True
    shown |= {
        "state": state,
        "names": list(reader.spec.measures) or ["value"],
        "is_json": not reader.spec.measures,
    }
    return static_page(request, "dashboard/lookup.html", shown)
