"""The history of one key, as its changelog or its row has it."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

import orjson
import psycopg
from django.http import HttpResponse, HttpResponseBase
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.accounts.permissions import KeyScope, key_scope
from webapp.api import caching, operations
from webapp.api.entries import key_parts, page, parts_of, whole_number
from webapp.api.export import FORMATS, stream
from webapp.api.lookups import look_up, look_up_together, read
from webapp.api.question import LARGEST_TXID, Queries, Query
from webapp.api.rendering import OrjsonRenderer
from webapp.api.serializers import MAX_VERSIONS
from webapp.api.views import ApiView, conditional, not_modified
from webapp.core.metrics import looked_up, phase_ended
from webapp.states import readers

DEFAULT_LIMIT = 100


def history(name: str, asked: Mapping[str, str], confined: KeyScope) -> dict[str, Any]:
    """Return the versions that a query string asks for.

    Raises ParseError, UnknownStateError, KeyShapeError, OutsideError.
    """
    confined.check_state(name)
    limit = whole_number(asked, "limit", 1, MAX_VERSIONS) or DEFAULT_LIMIT
    before = whole_number(asked, "before", 0, LARGEST_TXID)
    return read(lambda conn: _history(conn, name, key_parts(asked, "key"), limit, before, confined))


def _history(
    conn: psycopg.Connection, name: str, key: list[Any] | str, limit: int, before: int | None, confined: KeyScope
) -> dict[str, Any]:
    reader = readers.reader(conn, name)
    if key == "" and reader.spec.key:
        raise ParseError(f"key must be given, as a JSON list of {', '.join(reader.spec.key)}")
    typed = reader.spec.check_key(parts_of(key, reader.spec))
    confined.check_keys(reader.spec, [typed])
    snapshot = reader.history(typed, limit=limit, before=before)
    return {
        "state": name,
        "txid": snapshot.txid,
        "as_of": snapshot.as_of,
        "isolation": reader.isolation,
        "key": list(typed),
        "complete": snapshot.complete,
        "versions": orjson.Fragment(snapshot.results),
    }


# The doors to values: lookups, entries, histories.


class CsvRenderer(OrjsonRenderer):
    """Stands for a format when one is chosen; what it renders is problems, for entries are streamed."""

    media_type = FORMATS["csv"].media_type
    format = "csv"


class JsonLinesRenderer(OrjsonRenderer):
    media_type = FORMATS["ndjson"].media_type
    format = "ndjson"


class ArrowRenderer(OrjsonRenderer):
    media_type = FORMATS["arrow"].media_type
    format = "arrow"


class StateQueryView(ApiView):
    @operations.state_query
    def post(self, request: Request, name: str) -> HttpResponse:
        phase_ended(request, "authenticate")
        query, confined = Query.from_body(request.data), key_scope(request)
        phase_ended(request, "parse")
        answer = look_up(name, query, confined, caching.known(request))
        phase_ended(request, "query")
        looked_up(request, name, len(query.keys.asked))
        if isinstance(answer, str):
            return not_modified(answer)
        # Without DRF's rendering, which has nothing to choose here.
        body = orjson.dumps(answer.batch | answer.document)
        return HttpResponse(body, content_type=OrjsonRenderer.media_type, headers={"ETag": answer.etag})


class QueriesView(ApiView):
    @operations.queries
    def post(self, request: Request) -> HttpResponse:
        phase_ended(request, "authenticate")
        queries = Queries.from_body(request.data)
        phase_ended(request, "parse")
        answers = look_up_together(queries, key_scope(request))
        phase_ended(request, "query")
        for name, keys in queries.of_states:
            looked_up(request, name, len(keys.asked))
        response = Response(answers[0].batch | {"answers": [answer.document for answer in answers]})
        response.add_post_render_callback(partial(conditional, request))
        return response


class EntriesView(ApiView):
    renderer_classes = [OrjsonRenderer, CsvRenderer, JsonLinesRenderer, ArrowRenderer]

    @operations.entries
    def get(self, request: Request, name: str) -> HttpResponseBase:
        asked, confined = request.query_params, key_scope(request)
        file_format = request.accepted_renderer.format
        if file_format in FORMATS:
            form = FORMATS[file_format]
            return stream(name, asked, file_format, form, confined, only_head=request.method == "HEAD")
        found = page(name, asked, confined)
        return Response(found.document, headers=_link(request, found.next))


class HistoryView(ApiView):
    @operations.history
    def get(self, request: Request, name: str) -> Response:
        return Response(history(name, request.query_params, key_scope(request)))


def _link(request: Request, cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    limit = request.query_params.get("limit")
    again = {"cursor": cursor} | ({"limit": limit} if limit else {})
    return {"Link": f'<{request.path}?{urlencode(again)}>; rel="next"'}
