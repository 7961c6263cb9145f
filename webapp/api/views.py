"""All calls of the API: parse, ask a query or a service, answer."""

import re
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, cast
from urllib.parse import urlencode

import orjson
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.timezone import now
from drf_spectacular.views import SpectacularAPIView
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import NotAcceptable, ParseError
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tidegauge.webapp.accounts import usage
from tidegauge.webapp.accounts.concurrency import SEARCHES, client_of
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.permissions import READ_USAGE, REVOKE_TOKENS, STEER_PIPELINES, api_key, key_scope
from tidegauge.webapp.accounts.revoked_tokens import revoke_token
from tidegauge.webapp.api import openapi_texts
from tidegauge.webapp.api.direct import DirectPost
from tidegauge.webapp.api.entries import history, page
from tidegauge.webapp.api.export import FORMATS, stream
from tidegauge.webapp.api.groups import groups
from tidegauge.webapp.api.lookups import look_up, look_up_together
from tidegauge.webapp.api.one_key import key_as_json, key_in_path, look_up_one
from tidegauge.webapp.api.reference import reference
from tidegauge.webapp.api.rendering import OrjsonRenderer, conditional, digest, is_known, known_etags, not_modified
from tidegauge.webapp.api.requests import (
    EntriesParameters,
    ExportParameters,
    GroupsParameters,
    HistoryParameters,
    KeyParameters,
    KeyPathParameters,
    KeySeriesParameters,
    ListParameters,
    RequestSerializer,
    RunsParameters,
    SeriesParameters,
    UsageParameters,
    check_parameters,
    parameters_in,
    parameters_of,
    read_queries,
    read_query,
    read_range,
)
from tidegauge.webapp.api.series import key_series
from tidegauge.webapp.api.tokens import TokenBody, token_document
from tidegauge.webapp.catalog import queries
from tidegauge.webapp.catalog.documents import (
    batch_document,
    pipeline_document,
    run_document,
    series_document,
    state_document,
)
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.visible import Visible, without_names
from tidegauge.webapp.core.metrics import looked_up, phase_ended
from tidegauge.webapp.core.pools import SEARCH_CURSOR, SEARCHED
from tidegauge.webapp.maintenance import services
from tidegauge.webapp.maintenance.idempotency import IdempotentRequest

IDEMPOTENCY_KEY = re.compile("[ -~]{1,255}")


class AllowedMethods(APIView):
    """Answers OPTIONS with the methods alone; DRF's own answer describes serializers."""

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return HttpResponse(status=204, headers={"Allow": ", ".join(self.allowed_methods)})


class ApiView(AllowedMethods):
    """Gives every answer to a GET an ETag, a digest of the document; a client that sends it back gets a 304."""

    # By method; a method that is not listed has none.
    parameters: Mapping[str, type[RequestSerializer]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.check_parameters(request)

    def check_parameters(self, request: Any) -> None:
        """Raises UnknownParameterError."""
        # Another method is a 405, whatever its parameters.
        if request.META.get("QUERY_STRING") and request.method in {*self.allowed_methods} - {"OPTIONS"}:
            method = "GET" if request.method == "HEAD" else request.method
            check_parameters(request.GET, parameters_of(self.parameters.get(method)))

    def handle_exception(self, error: Exception) -> Response:
        return super().handle_exception(without_names(error, self.request))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        if request.method in ("GET", "HEAD") and answer.status_code == 200 and isinstance(answer, Response):
            answer.add_post_render_callback(partial(conditional, request))
        return answer


# Values: lookups, entries, histories


class StateQueryView(DirectPost, ApiView):
    @openapi_texts.state_query
    def post(self, request: Request, name: str) -> HttpResponse:
        phase_ended(request, "authenticate")
        query, when = read_query(name, request.data)
        phase_ended(request, "parse")
        answer = look_up(query, when, key_scope(request), known_etags(request))
        phase_ended(request, "query")
        looked_up(request, name, len(query.keys))
        if isinstance(answer, str):
            return not_modified(answer)
        # DRF's rendering costs time and has nothing to choose here.
        body = orjson.dumps(answer.batch | answer.document)
        return HttpResponse(body, content_type=OrjsonRenderer.media_type, headers={"ETag": answer.etag})


class KeyAtPathView(ApiView):
    parameters = {"GET": KeyPathParameters}

    @openapi_texts.key_at_path
    def get(self, request: Request, name: str, key: str) -> HttpResponse:
        asked = KeyPathParameters.read(request.query_params.dict())
        return _one_key(request, name, key_in_path(name, key, key_scope(request)), asked)


class KeyView(ApiView):
    parameters = {"GET": KeyParameters}

    @openapi_texts.key
    def get(self, request: Request, name: str) -> HttpResponse:
        asked = KeyParameters.read(request.query_params.dict())
        return _one_key(request, name, key_as_json(name, asked.get("key", ""), key_scope(request)), asked)


def _one_key(request: Request, name: str, key: list[Any], asked: Mapping[str, Any]) -> HttpResponse:
    answer = look_up_one(name, key, asked, key_scope(request), known_etags(request))
    looked_up(request, name, 1)
    body, etag = (b"", answer) if isinstance(answer, str) else answer
    if not body or is_known(etag, request):
        response = not_modified(etag)
    else:
        response = HttpResponse(body, content_type=OrjsonRenderer.media_type, headers={"ETag": etag})
    response.headers["Cache-Control"] = "private, max-age=0"
    return response


class QueriesView(DirectPost, ApiView):
    @openapi_texts.queries
    def post(self, request: Request) -> HttpResponse:
        phase_ended(request, "authenticate")
        asked, when = read_queries(request.data)
        phase_ended(request, "parse")
        answers = look_up_together(asked, when, key_scope(request))
        phase_ended(request, "query")
        for query in asked:
            looked_up(request, query.state, len(query.keys))
        response = Response(answers[0].batch | {"answers": [answer.document for answer in answers]})
        response.add_post_render_callback(partial(conditional, request))
        return response


class EntriesView(ApiView):
    parameters = {"GET": EntriesParameters}

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        try:
            return super().perform_content_negotiation(request, force)
        except NotAcceptable:
            exports = [reverse(f"lookup:export_{form}", kwargs=self.kwargs) for form in FORMATS]
            raise NotAcceptable(f"pages of entries are JSON; for other formats GET {', '.join(exports)}") from None

    @openapi_texts.entries
    def get(self, request: Request, name: str) -> HttpResponseBase:
        scope = key_scope(request)
        scope.check_state(name)
        asked = EntriesParameters.read(parameters_in(request.query_params))
        is_search = not SEARCHED.isdisjoint(asked) or asked.get("cursor", "").startswith(SEARCH_CURSOR)
        with SEARCHES.held(client_of(request)) if is_search else nullcontext():
            found = page(name, asked, scope)
        return Response(found.document, headers=link_to_next(request, found.next))


class GroupsView(ApiView):
    parameters = {"GET": GroupsParameters}

    @openapi_texts.groups
    def get(self, request: Request, name: str) -> Response:
        scope = key_scope(request)
        scope.check_state(name)
        asked = GroupsParameters.read(parameters_in(request.query_params))
        with SEARCHES.held(client_of(request)):
            return Response(groups(name, asked, scope))


class ExportView(ApiView):
    """Streams a range as a file; a subclass sets its format."""

    file_format = ""
    parameters = {"GET": ExportParameters}

    def get_renderers(self) -> list[BaseRenderer]:
        # For content negotiation alone: files are streamed.
        renderer = BaseRenderer()
        renderer.format, renderer.media_type = self.file_format, FORMATS[self.file_format].media_type
        return [renderer]

    def get(self, request: Request, name: str) -> HttpResponseBase:
        scope = key_scope(request)
        scope.check_state(name)
        asked = ExportParameters.read(parameters_in(request.query_params))
        only_head = request.method == "HEAD"
        return stream(name, asked, self.file_format, scope, client=client_of(request), only_head=only_head)


class CsvExportView(ExportView):
    file_format = "csv"

    @openapi_texts.export_csv
    def get(self, request: Request, name: str) -> HttpResponseBase:
        return super().get(request, name)


class JsonLinesExportView(ExportView):
    file_format = "ndjson"

    @openapi_texts.export_ndjson
    def get(self, request: Request, name: str) -> HttpResponseBase:
        return super().get(request, name)


class ArrowExportView(ExportView):
    file_format = "arrow"

    @openapi_texts.export_arrow
    def get(self, request: Request, name: str) -> HttpResponseBase:
        return super().get(request, name)


class HistoryView(ApiView):
    parameters = {"GET": HistoryParameters}

    @openapi_texts.history
    def get(self, request: Request, name: str) -> Response:
        scope = key_scope(request)
        scope.check_state(name)
        return Response(history(name, HistoryParameters.read(request.query_params.dict()), scope))


class KeySeriesView(ApiView):
    parameters = {"GET": KeySeriesParameters}

    @openapi_texts.key_series
    def get(self, request: Request, name: str) -> Response:
        scope = key_scope(request)
        scope.check_state(name)
        asked = KeySeriesParameters.read(request.query_params.dict())
        return Response(key_series(name, asked, read_range(asked), scope))


def link_to_next(request: Request, cursor: str | None) -> dict[str, str]:
    """Return the header that says where the next page is."""
    if cursor is None:
        return {}
    limit = request.query_params.get("limit")
    again = {"cursor": cursor} | ({"limit": limit} if limit else {})
    return {"Link": f'<{request.path}?{urlencode(again)}>; rel="next"'}


# States, pipelines, maintenance


class StatesView(ApiView):
    @openapi_texts.states
    def get(self, request: Request) -> Response:
        return Response({"states": [state_document(state) for state in _visible(request).states()]})


class StateView(ApiView):
    @openapi_texts.state
    def get(self, request: Request, name: str) -> Response:
        return Response(state_document(_visible(request).state(name)))


class PipelinesView(ApiView):
    @openapi_texts.pipelines
    def get(self, request: Request) -> Response:
        return Response({"pipelines": [pipeline_document(pipeline) for pipeline in _visible(request).pipelines()]})


class PipelineView(ApiView):
    @openapi_texts.pipeline
    def get(self, request: Request, name: str) -> Response:
        return Response(pipeline_document(_visible(request).pipeline(name)))


class BatchesView(ApiView):
    parameters = {"GET": ListParameters}

    @openapi_texts.batches
    def get(self, request: Request, name: str) -> Response:
        asked = ListParameters.read(request.query_params.dict())
        found = _visible(request).batches(name, asked["limit"])
        return Response({"batches": [batch_document(batch) for batch in found]})


class PipelineSeriesView(ApiView):
    parameters = {"GET": SeriesParameters}

    @openapi_texts.pipeline_series
    def get(self, request: Request, name: str) -> Response:
        asked = read_range(SeriesParameters.read(request.query_params.dict()))
        return Response(series_document(_visible(request).series(name, asked)))


class PauseView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @openapi_texts.pause
    def post(self, request: Request, name: str) -> Response:
        key_scope(request).check_unrestricted()
        services.pause_pipeline(name=name, requested_by=requester(request))
        return Response(pipeline_document(queries.pipeline(name)), status=202)


class ResumeView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @openapi_texts.resume
    def post(self, request: Request, name: str) -> Response:
        key_scope(request).check_unrestricted()
        services.resume_pipeline(name=name, requested_by=requester(request))
        return Response(pipeline_document(queries.pipeline(name)), status=202)


class StateMaintenanceView(ApiView):
    """Requests a run; a subclass sets its kind."""

    kind = ""
    scopes = {"POST": Scope.MAINTAIN}

    def post(self, request: Request, name: str) -> Response:
        key_scope(request).check_whole_state(name)
        wanted = {"kind": self.kind, "state": name, "requested_by": requester(request)}
        once = _idempotent(request)
        if once is None:
            return _accepted(services.request_maintenance(**wanted))
        run, is_repeated = services.request_maintenance_once(**wanted, request=once)
        response = _accepted(_visible(request).of_run(run))
        if is_repeated:
            response.headers["Idempotent-Replayed"] = "true"
        return response


class CompactionView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.COMPACTION

    @openapi_texts.compaction
    def post(self, request: Request, name: str) -> Response:
        return super().post(request, name)


class ExpiryView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.EXPIRY

    @openapi_texts.expiry
    def post(self, request: Request, name: str) -> Response:
        return super().post(request, name)


class TokensView(ApiView):
    for_saved_queries = True
    scopes = {"POST": Scope.ISSUE_TOKENS}

    @openapi_texts.tokens
    def post(self, request: Request) -> Response:
        key = api_key(request)
        if key is None:
            raise PermissionDenied("tokens are made with an API key, not with a session")
        issued = issue(key, **TokenBody.read(request.data))
        return Response(token_document(issued), status=201, headers={"Cache-Control": "no-store"})


class TokenView(ApiView):
    for_saved_queries = True
    scopes = {"DELETE": Scope.ISSUE_TOKENS}
    permission = REVOKE_TOKENS

    @openapi_texts.revoke_token
    def delete(self, request: Request, token_id: str) -> Response:
        revoke_token(token_id, by=api_key(request) or cast(User, request.user))
        return Response(status=204)


class UsageView(ApiView):
    parameters = {"GET": UsageParameters}

    @openapi_texts.usage
    def get(self, request: Request) -> Response:
        asked = UsageParameters.read(request.query_params.dict())
        key, wanted = api_key(request), asked.get("key", "")
        if key is None and not request.user.has_perm(READ_USAGE):
            raise PermissionDenied(f"you lack the permission {READ_USAGE!r}; the group admin has it")
        if key is None:
            key_scope(request).check_unrestricted()
        elif key.token is not None:
            raise PermissionDenied("a token may not read usage; use its API key")
        elif not key_scope(request).is_unrestricted:
            if wanted not in ("", key.prefix):
                raise PermissionDenied(
                    f"this API key is restricted, so it may read its own usage alone, {key.prefix!r}"
                )
            wanted = key.prefix
        rows = usage.since(asked["hours"], prefix=wanted, state=asked.get("state", ""))
        return Response({"usage": [usage.document(row) for row in rows[: asked["limit"]]]})


class RunsView(ApiView):
    parameters = {"GET": RunsParameters}

    @openapi_texts.runs
    def get(self, request: Request) -> Response:
        asked = RunsParameters.read(request.query_params.dict())
        return Response({"runs": [run_document(run) for run in _visible(request).runs(**asked)]})


class RunView(ApiView):
    scopes = {"DELETE": Scope.MAINTAIN}

    @openapi_texts.run
    def get(self, request: Request, run_id: int) -> Response:
        return Response(run_document(_visible(request).run(run_id)))

    @openapi_texts.cancel
    def delete(self, request: Request, run_id: int) -> Response:
        visible = _visible(request)
        visible.scope.check_whole_state(visible.run(run_id).state_id)
        return _accepted(visible.of_run(services.cancel_maintenance(run_id, requested_by=visible.requester)))


def _accepted(run: MaintenanceRun) -> Response:
    return Response(run_document(run), status=202, headers={"Location": reverse("lookup:run", args=[run.id])})


def _idempotent(request: Request) -> IdempotentRequest | None:
    """Raises ParseError for a malformed `Idempotency-Key`."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if IDEMPOTENCY_KEY.fullmatch(key) is None:
        raise ParseError("Idempotency-Key must be 1 to 255 printable characters of ASCII, such as a UUID")
    own = api_key(request)
    caller = f"user {request.user.pk}" if own is None else f"key {own.pk}"
    return IdempotentRequest(caller, key, digest(request.path.encode(), request.body))


def requester(request: Request) -> str:
    key = api_key(request)
    return request.user.get_username() if key is None else f"API key {key.name}"


def _visible(request: Request) -> Visible:
    return Visible(key_scope(request), requester(request))


# Documentation


class SchemaView(AllowedMethods, SpectacularAPIView):
    pass


class DocsView(AllowedMethods):
    """The same document as a page."""

    schema = None  # not a call of the API
    authentication_classes = [SessionAuthentication]
    permission_classes = SchemaView.permission_classes

    def get(self, request: Request) -> HttpResponse:
        document = SchemaView.generator_class().get_schema(public=True)
        shown = {
            "reference": reference(document, request.build_absolute_uri("/").rstrip("/")),
            "layout": "dashboard/base.html",
            "now": now(),
        }
        return render(request._request, "dashboard/reference.html", shown)
