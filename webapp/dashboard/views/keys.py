"""Keys of a state: one with its versions, and a pasted list of them."""

import json
from typing import Any

from django.conf import settings
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from state_backends.errors import KeyShapeError, UnknownStateError
from state_backends.factory import Reader
from state_backends.row import Key
from webapp.dashboard.asked import whole_number
from webapp.dashboard.curl import curl
from webapp.dashboard.entries import REFUSED, cells, number_measures
from webapp.dashboard.key_history import history, read_key
from webapp.dashboard.live import page, signed_in
from webapp.dashboard.lookups import TooManyKeysError, look_up_pasted
from webapp.dashboard.views.following import of_state
from webapp.dashboard.views.missing import no_state
from webapp.dashboard.views.states import SILENT
from webapp.dashboard.views.still import still_page
from webapp.states import selectors, specs, stores


@of_state
def key(request, feeding, version, name):
    reader = specs.reader(stores.connection(), name)
    asked = {part: request.GET[part] for part in ("key", "by", "before") if request.GET.get(part)}
    try:
        values = _versions(reader, asked)
    except KeyShapeError as error:
        values = {"refusal": str(error), "asked_key": asked.get("key", "")}
    except SILENT:
        version, values = "", {"is_silent": True}
    shown = {
        "pipeline": feeding,
        "state": selectors.state(name),
        "is_json": not reader.spec.measures,
        "curl": curl(request, name, values.get("key", [])),
    }
    return page(request, "dashboard/key.html", version, shown | values, asked)


def _versions(reader: Reader, asked: dict[str, str]) -> dict[str, Any]:
    typed: Key = reader.spec.check_key(read_key(asked.get("key", "[]")))
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
        "chart": past.chart(measure) if measure else None,
        "is_first": "before" not in asked,
    }


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def lookup(request, name):
    """Answer a pasted list. It is posted for its length; it changes nothing."""
    if request.method != "POST":
        return redirect(f"{reverse('dashboard:state', args=[name])}#lookup")
    try:
        reader = specs.reader(stores.connection(), name)
    except UnknownStateError:
        return no_state(request, name)
    text, asked_batch = request.POST.get("keys", ""), request.POST.get("as_of", "")
    shown: dict[str, Any] = {"text": text, "as_of": asked_batch, "limit": settings.TIDEMARK_LOOKUP_MAX_KEYS}
    try:
        shown["lookup"] = look_up_pasted(
            reader, text, limit=settings.TIDEMARK_LOOKUP_MAX_KEYS, as_of=whole_number(asked_batch)
        )
    except (*REFUSED, TooManyKeysError) as error:
        shown["refusal"] = str(error)
    except SILENT:
        shown["is_silent"] = True
    shown |= {
        "state": selectors.state(name),
        "names": list(reader.spec.measures) or ["value"],
        "is_json": not reader.spec.measures,
    }
    return still_page(request, "dashboard/lookup.html", shown)
