"""The doors to pipelines, states and maintenance: parse, ask a selector or a service, answer."""

from typing import Any

from django.urls import reverse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from webapp.api_keys.confinement import confinement
from webapp.api_keys.models import Scope
from webapp.api_keys.permissions import STEER_PIPELINES, api_key
from webapp.lookup import documentation
from webapp.lookup.api_view import ApiView
from webapp.lookup.seen import seen_batches, seen_pipeline, seen_pipelines, seen_run
from webapp.states import runs, selectors, services
from webapp.states.models import MaintenanceRun
from webapp.states.representations import pipeline_document, run_document, state_document

MAX_LIST = 500


class StatesView(ApiView):
    @documentation.states
    def get(self, request: Request) -> Response:
        confined = confinement(request)
        return Response(
            {"states": [state_document(state) for state in selectors.states() if confined.sees(state.name)]}
        )


class StateView(ApiView):
    @documentation.state
    def get(self, request: Request, name: str) -> Response:
        confinement(request).check_state(name)
        return Response(state_document(selectors.state(name)))


class PipelinesView(ApiView):
    @documentation.pipelines
    def get(self, request: Request) -> Response:
        return Response({"pipelines": seen_pipelines(confinement(request))})


class PipelineView(ApiView):
    @documentation.pipeline
    def get(self, request: Request, name: str) -> Response:
        return Response(seen_pipeline(name, confinement(request)))


class BatchesView(ApiView):
    @documentation.batches
    def get(self, request: Request, name: str) -> Response:
        return Response({"batches": seen_batches(name, _limit(request), confinement(request))})


class PauseView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @documentation.pause
    def post(self, request: Request, name: str) -> Response:
        confinement(request).check_free()
        services.pause_pipeline(name=name, requested_by=_requester(request))
        return Response(pipeline_document(selectors.pipeline(name)), status=202)


class ResumeView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @documentation.resume
    def post(self, request: Request, name: str) -> Response:
        confinement(request).check_free()
        services.resume_pipeline(name=name, requested_by=_requester(request))
        return Response(pipeline_document(selectors.pipeline(name)), status=202)


class StateMaintenanceView(ApiView):
    """Asks for a run; `kind` is set by the route."""

    kind = ""
    scopes = {"POST": Scope.MAINTAIN}

    def post(self, request: Request, name: str) -> Response:
        confinement(request).check_whole_state(name)
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


class RunsView(ApiView):
    @documentation.runs
    def get(self, request: Request) -> Response:
        found = runs.runs(
            state=_text(request, "state"),
            kind=_choice(request, "kind", MaintenanceRun.Kind.values),
            status=_choice(request, "status", MaintenanceRun.Status.values),
            limit=_limit(request),
            states=confinement(request).states,
        )
        return Response({"runs": [run_document(run) for run in found]})


class RunView(ApiView):
    scopes = {"DELETE": Scope.MAINTAIN}

    @documentation.run
    def get(self, request: Request, run_id: int) -> Response:
        return Response(run_document(seen_run(run_id, confinement(request))))

    @documentation.cancel
    def delete(self, request: Request, run_id: int) -> Response:
        confined = confinement(request)
        confined.check_whole_state(seen_run(run_id, confined).state_id)
        return _accepted(services.cancel_maintenance(run_id, requested_by=_requester(request)))


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
