"""The doors to values: lookups, entries, histories."""

from functools import partial
from urllib.parse import urlencode

import orjson
from django.http import HttpResponse, HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.api_keys.confinement import confinement
from webapp.lookup import documentation, etag
from webapp.lookup.api_view import ApiView, conditional, not_modified
from webapp.lookup.entries import page
from webapp.lookup.formats import FORMATS
from webapp.lookup.history import history
from webapp.lookup.json import OrjsonRenderer
from webapp.lookup.query import look_up, look_up_together
from webapp.lookup.question import Queries, Query
from webapp.lookup.stream import stream
from webapp.observability.metrics import looked_up, phase_ended


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
    @documentation.state_query
    def post(self, request: Request, name: str) -> HttpResponse:
        phase_ended(request, "authenticate")
        query, confined = Query.from_body(request.data), confinement(request)
        phase_ended(request, "parse")
        answer = look_up(name, query, confined, etag.known(request))
        phase_ended(request, "query")
        looked_up(request, name, len(query.keys.asked))
        if isinstance(answer, str):
            return not_modified(answer)
        # Without DRF's rendering, which has nothing to choose here.
        body = orjson.dumps(answer.batch | answer.document)
        return HttpResponse(body, content_type=OrjsonRenderer.media_type, headers={"ETag": answer.etag})


class QueriesView(ApiView):
    @documentation.queries
    def post(self, request: Request) -> HttpResponse:
        phase_ended(request, "authenticate")
        queries = Queries.from_body(request.data)
        phase_ended(request, "parse")
        answers = look_up_together(queries, confinement(request))
        phase_ended(request, "query")
        for name, keys in queries.of_states:
            looked_up(request, name, len(keys.asked))
        response = Response(answers[0].batch | {"answers": [answer.document for answer in answers]})
        response.add_post_render_callback(partial(conditional, request))
        return response


class EntriesView(ApiView):
    renderer_classes = [OrjsonRenderer, CsvRenderer, JsonLinesRenderer, ArrowRenderer]

    @documentation.entries
    def get(self, request: Request, name: str) -> HttpResponseBase:
        asked, confined = request.query_params, confinement(request)
        file_format = request.accepted_renderer.format
        if file_format in FORMATS:
            form = FORMATS[file_format]
            return stream(name, asked, file_format, form, confined, only_head=request.method == "HEAD")
        found = page(name, asked, confined)
        return Response(found.document, headers=_link(request, found.next))


class HistoryView(ApiView):
    @documentation.history
    def get(self, request: Request, name: str) -> Response:
        return Response(history(name, request.query_params, confinement(request)))


def _link(request: Request, cursor: str | None) -> dict[str, str]:
    if cursor is None:
        return {}
    limit = request.query_params.get("limit")
    again = {"cursor": cursor} | ({"limit": limit} if limit else {})
    return {"Link": f'<{request.path}?{urlencode(again)}>; rel="next"'}
