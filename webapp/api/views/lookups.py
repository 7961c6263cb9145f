"""Lookups: keys of a state, one key by GET, keys of several states."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from tidegauge.state_backends import StateSpec
from tidegauge.webapp.accounts.permissions import key_scope
from tidegauge.webapp.api import on_loop
from tidegauge.webapp.api.answers import AnswersSerializer, KeyAnswerSerializer, StateAnswerSerializer
from tidegauge.webapp.api.api_view import ApiView
from tidegauge.webapp.api.calls import answered, asked, call
from tidegauge.webapp.api.direct import DirectPost, is_direct, parsed, takes_json
from tidegauge.webapp.api.entries import parts_of
from tidegauge.webapp.api.lookups import Answer, look_up, look_up_together
from tidegauge.webapp.api.on_loop import Database, LoopView
from tidegauge.webapp.api.one_key import document_of, spec_of
from tidegauge.webapp.api.openapi import NO_KEY, NOT_YET_OR_IN_TIME
from tidegauge.webapp.api.parameters import KeyParameters, read_one
from tidegauge.webapp.api.rendering import OrjsonRenderer, conditional, is_known, known_etags, not_modified
from tidegauge.webapp.api.requests import (
    MAX_LOOKUPS,
    Lookup,
    LookupSerializer,
    LookupsSerializer,
    When,
    read_lookup,
    read_lookups,
)
from tidegauge.webapp.core.metrics import looked_up, phase_ended

BATCH = {"epoch": "8a1f0c2e9b7d4653", "txid": 42, "batch_time": "2026-11-20T07:09:00.123456+00:00"}
OF_STATE = {"state": "flights_by_carrier", "isolation": "committed"}
LOOKUP = {"keys": [["JFK", "AA"], ["JFK", "ZZ"]], "measures": ["flights"]}
RESULTS: list[dict[str, Any]] = [
    {"key": ["JFK", "AA"], "status": "found", "value": {"flights": 13783}},
    {"key": ["JFK", "ZZ"], "status": "missing", "value": None},
]
COMBINED = {"keys": 1, "missing": 1, "expired": 0, "value": {"flights": 13783}}
WAITING = {409: NOT_YET_OR_IN_TIME}


class StateLookupView(LoopView, DirectPost, ApiView):
    @call(
        "look_up_state", "states", StateAnswerSerializer, "One result per key asked, or all combined.", 409, 410,
        body=LookupSerializer, is_conditional=True, instead=WAITING,
        examples=[
            asked("two keys", LOOKUP),
            asked("combined", LOOKUP | {"combine": True}),
            asked("read your own write", LOOKUP | {"min_txid": 42, "epoch": BATCH["epoch"], "wait_ms": 1000}),
            answered("two keys", OF_STATE | BATCH | {"results": RESULTS}),
            answered("combined", OF_STATE | BATCH | {"combined": COMBINED}),
        ],
    )  # fmt: skip
    def post(self, request: Request, name: str) -> HttpResponse:
        """Look up keys of a state.

        Answers one result per key, in the order of the request, all from one committed batch. `status` is `found`,
        `missing`, or `expired` for a key past its time to live; `value` is null unless found. `combine` merges the keys
        into one value instead. By default the batch is the newest one; `min_txid` waits until that batch is committed
        (a 409 after `wait_ms`), and `at_txid` answers as after an earlier one (a 410 if that is too old).

        At most $TIDEGAUGE_LOOKUP_MAX_KEYS keys; more are a 400 with `max_keys`. A wrong key is a 400 with its `index`.
        """
        lookup, when = self._asked(request, name)
        return self._answered(request, lookup, look_up(lookup, when, key_scope(request), known_etags(request)))

    def is_for_loop(self, request: WSGIRequest) -> bool:
        return is_direct(request) and "HTTP_CONTENT_ENCODING" not in request.META

    async def on_loop(self, request: WSGIRequest, database: Database, name: str) -> HttpResponse:
        request.data = parsed(request)  # type: ignore[attr-defined]
        lookup, when = self._asked(request, name)
        answer = await on_loop.look_up(lookup, when, key_scope(request), known_etags(request), database)
        return self._answered(request, lookup, answer)

    def _asked(self, request: Any, name: str) -> tuple[Lookup, When]:
        phase_ended(request, "authenticate")
        asked = read_lookup(name, request.data)
        phase_ended(request, "parse")
        return asked

    def _answered(self, request: Any, lookup: Lookup, answer: Answer | str) -> HttpResponse:
        phase_ended(request, "query")
        looked_up(request, lookup.state, len(lookup.keys))
        if isinstance(answer, str):
            return not_modified(answer)
        # DRF's rendering costs time and has nothing to choose here.
        body = orjson.dumps(answer.batch | answer.document)
        return HttpResponse(body, content_type=OrjsonRenderer.media_type, headers={"ETag": answer.etag})


class KeyView(LoopView, ApiView):
    parameters = {"GET": KeyParameters}

    @call(
        "get_key", "states", KeyAnswerSerializer, "The key.", 409, 410, instead=WAITING | {404: NO_KEY},
        examples=[answered("one key", BATCH | OF_STATE | RESULTS[0])],
    )  # fmt: skip
    def get(self, request: Request, name: str) -> HttpResponse:
        """Look up one key.

        Answers what `POST /states/{name}/lookup` does for one key, by GET, so that clients can cache it by its `ETag`.
        A key that is missing or expired is a 404, whose `key_status` says which, as of the batch `txid`.
        """
        asked, scope = self._asked(request), key_scope(request)
        lookup, when = self._lookup(name, asked, spec_of(name, scope))
        return self._answered(request, name, look_up(lookup, when, scope, known_etags(request)))

    def is_for_loop(self, request: WSGIRequest) -> bool:
        return request.method == "GET" and takes_json(request)

    async def on_loop(self, request: WSGIRequest, database: Database, name: str) -> HttpResponse:
        asked, scope = self._asked(request), key_scope(request)
        lookup, when = self._lookup(name, asked, await on_loop.spec_of(name, scope, database))
        return self._answered(request, name, await on_loop.look_up(lookup, when, scope, known_etags(request), database))

    def _asked(self, request: Request | WSGIRequest) -> dict[str, Any]:
        return self.parameters["GET"].read(request.GET.dict())

    def _lookup(self, name: str, asked: Mapping[str, Any], spec: StateSpec) -> tuple[Lookup, When]:
        return read_one(name, parts_of(asked.get("key", ""), spec), asked)

    def _answered(self, request: Request | WSGIRequest, name: str, answer: Answer | str) -> HttpResponse:
        etag = answer if isinstance(answer, str) else answer.etag
        body = b"" if isinstance(answer, str) else document_of(answer)
        looked_up(request, name, 1)
        if not body or is_known(etag, request):
            response = not_modified(etag)
        else:
            response = HttpResponse(body, content_type=OrjsonRenderer.media_type, headers={"ETag": etag})
        response.headers["Cache-Control"] = "private, max-age=0"
        return response


class LookupsView(DirectPost, ApiView):
    max_lookups = MAX_LOOKUPS

    @call(
        "look_up_states", "states", AnswersSerializer, "One answer per lookup, in the order asked.", 404, 409, 410,
        body=LookupsSerializer, is_conditional=True, instead=WAITING,
        examples=[
            asked(
                "two states",
                {"lookups": [{"state": "flights_by_carrier", **LOOKUP}, {"state": "totals", "keys": [[]]}]},
            ),
            answered("one state", BATCH | {"answers": [OF_STATE | {"results": RESULTS}]}),
        ],
    )  # fmt: skip
    def post(self, request: Request) -> HttpResponse:
        """Look up keys of several states.

        Answers one lookup per state, in the order of the request, all from one committed batch; each is as in `POST
        /states/{name}/lookup`. The states must be of one pipeline, because others have no batch in common: a 400.

        At most $max_lookups lookups, and $TIDEGAUGE_LOOKUP_MAX_KEYS keys over all of them.
        """
        phase_ended(request, "authenticate")
        lookups, when = read_lookups(request.data)
        phase_ended(request, "parse")
        answers = look_up_together(lookups, when, key_scope(request))
        phase_ended(request, "query")
        for lookup in lookups:
            looked_up(request, lookup.state, len(lookup.keys))
        response = Response(answers[0].batch | {"answers": [answer.document for answer in answers]})
        response.add_post_render_callback(partial(conditional, request))
        return response
