"""The doors of the API: parse, ask a selector or a service, answer."""

from typing import Any

from django.urls import reverse
from django.utils.http import parse_etags
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from webapp.api_keys.models import Scope
from webapp.api_keys.permissions import api_key
from webapp.lookup import documentation
from webapp.lookup.query import Query, look_up
from webapp.states import runs, selectors, services
from webapp.states.models import MaintenanceRun
from webapp.states.representations import batch_document, pipeline_document, run_document, state_document

MAX_LIST = 500


class StateQueryView(APIView):
    @documentation.state_query
    def post(self, request: Request, name: str) -> Response:
        answer = look_up(name, Query.from_body(request.data))
        headers = {"ETag": answer.etag}
        if answer.etag in parse_etags(request.headers.get("If-None-Match", "")):
            return Response(status=304, headers=headers)
        return Response(answer.document, headers=headers)


class StatesView(APIView):
    @documentation.states
    def get(self, request: Request) -> Response:
        return Response({"states": [state_document(state) for state in selectors.states()]})


class StateView(APIView):
    @documentation.state
    def get(self, request: Request, name: str) -> Response:
        return Response(state_document(selectors.state(name)))


class PipelinesView(APIView):
    @documentation.pipelines
    def get(self, request: Request) -> Response:
        return Response({"pipelines": [pipeline_document(pipeline) for pipeline in selectors.pipelines()]})


class PipelineView(APIView):
    @documentation.pipeline
    def get(self, request: Request, name: str) -> Response:
        return Response(pipeline_document(selectors.pipeline(name)))


class BatchesView(APIView):
    @documentation.batches
    def get(self, request: Request, name: str) -> Response:
        batches = selectors.batches(name, _limit(request))
        return Response({"batches": [batch_document(batch) for batch in batches]})


class PauseView(APIView):
    scopes = {"POST": Scope.MAINTAIN}

    @documentation.pause
    def post(self, request: Request, name: str) -> Response:
        services.pause_pipeline(name=name, requested_by=_requester(request))
        return Response(pipeline_document(selectors.pipeline(name)), status=202)


class ResumeView(APIView):
    scopes = {"POST": Scope.MAINTAIN}

    @documentation.resume
    def post(self, request: Request, name: str) -> Response:
        services.resume_pipeline(name=name, requested_by=_requester(request))
        return Response(pipeline_document(selectors.pipeline(name)), status=202)


class StateMaintenanceView(APIView):
    """Asks for a run; `kind` is set by the route."""

    kind = ""
    scopes = {"POST": Scope.MAINTAIN}

    def post(self, request: Request, name: str) -> Response:
        run = services.request_maintenance(kind=self.kind, state=name, requested_by=_requester(request))
        return _accepted(run)


class CompactionView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.COMPACTION

    @documentation.compaction
    def post(self, request: Request, name: str) -> Response:
        return super().post(request, name)


class ExpiryView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.EXPIRY

    @documentation.expiry
    def post(self, request: Request, name: str) -> Response:
        return super().post(request, name)


class RunsView(APIView):
    @documentation.runs
    def get(self, request: Request) -> Response:
        found = runs.runs(
            state=_text(request, "state"),
            kind=_choice(request, "kind", MaintenanceRun.Kind.values),
            status=_choice(request, "status", MaintenanceRun.Status.values),
            limit=_limit(request),
        )
        return Response({"runs": [run_document(run) for run in found]})


class RunView(APIView):
    scopes = {"DELETE": Scope.MAINTAIN}

    @documentation.run
    def get(self, request: Request, run_id: int) -> Response:
        return Response(run_document(runs.run(run_id)))

    @documentation.cancel
    def delete(self, request: Request, run_id: int) -> Response:
        return _accepted(services.cancel_maintenance(run_id))


def _accepted(run: MaintenanceRun) -> Response:
    return Response(run_document(run), status=202, headers={"Location": reverse("lookup:run", args=[run.id])})


def _requester(request: Request) -> str:
    key = api_key(request)
    return request.user.get_username() if key is None else f"API key {key.name}"


def _limit(request: Request, default: int = 50) -> int:
    asked: Any = request.query_params.get("limit", default)
    try:
        limit = int(asked)
    except ValueError:
        limit = 0
    if not 1 <= limit <= MAX_LIST:
        raise ParseError(f"limit must be a number from 1 to {MAX_LIST}, got {asked!r}")
    return limit


def _choice(request: Request, name: str, choices: list[str]) -> str:
    asked = _text(request, name)
    if asked and asked not in choices:
        raise ParseError(f"{name} must be one of {', '.join(choices)}, got {asked!r}")
    return asked


def _text(request: Request, name: str) -> str:
    asked = request.query_params.get(name, "")
    if "\0" in asked:
        raise ParseError(f"{name} holds a NUL character")
    return asked
