"""What all doors of the API have in common beyond DRF: ETags on what is read, OPTIONS, routes on their way out."""

from functools import partial
from typing import Any

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from django.urls import reverse
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from state_backends.errors import UnknownNameError, UnknownPipelineError
from webapp.accounts.models import Scope
from webapp.accounts.permissions import STEER_PIPELINES, KeyScope, api_key, key_scope
from webapp.api import caching, deprecation, operations
from webapp.states import queries, services
from webapp.states.batches import newest_batches
from webapp.states.documents import batch_document, pipeline_document, run_document, state_document
from webapp.states.models import MaintenanceRun
from webapp.states.queries import PipelineStatus
from webapp.states.services import UnknownRunError


class ApiView(APIView):
    """A GET whose answer the client knows already costs it a 304: the ETag is a digest of the document."""

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        return Response(status=204, headers={"Allow": ", ".join(self.allowed_methods)})

    def handle_exception(self, error: Exception) -> Response:
        if isinstance(error, UnknownNameError) and not key_scope(self.request).is_free:
            # Without the list of those there are, which are not all for a confined API key to know.
            error = type(error)(f"{error.kind} does not exist")
        return super().handle_exception(error)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        if settings.TIDEMARK_DEPRECATED:
            _mark(request, answer)
        if request.method in ("GET", "HEAD") and answer.status_code == 200 and isinstance(answer, Response):
            answer.add_post_render_callback(partial(conditional, request))
        return answer


def conditional(request: Request, response: Response) -> HttpResponse | None:
    """Give a rendered answer its ETag; return a 304 in its place where the client has it."""
    tag = f'"{caching.digest(response.content)}"'
    response["ETag"] = tag
    return not_modified(tag, response) if caching.is_known(request, tag) else None


def not_modified(tag: str, instead_of: HttpResponse | None = None) -> HttpResponse:
    answer = HttpResponse(status=304, headers={"ETag": tag})
    del answer["Content-Type"]
    for name in ("Vary", "Link", "Deprecation", "Sunset"):
        if instead_of is not None and name in instead_of:
            answer[name] = instead_of[name]
    return answer


def _mark(request: Request, answer: HttpResponseBase) -> None:
    match = request.resolver_match
    marked = settings.TIDEMARK_DEPRECATED.get(match.url_name) if match else None
    for name, value in deprecation.headers(marked).items() if marked else []:
        # A page may have a link of its own, to the next one.
        answer[name] = f"{answer[name]}, {value}" if name == "Link" and name in answer else value


# What a confined API key sees of pipelines, batches and runs: what concerns its states, and no name of another.


def seen_pipelines(confined: KeyScope) -> list[dict[str, Any]]:
    return [_pipeline(pipeline, confined) for pipeline in queries.pipelines() if _sees(confined, pipeline)]


def seen_pipeline(name: str, confined: KeyScope) -> dict[str, Any]:
    """Raises UnknownPipelineError, also for a pipeline of none of the API key's states."""
    pipeline = queries.pipeline(name)
    if not _sees(confined, pipeline):
        raise UnknownPipelineError(f"pipeline {name!r} does not exist")
    return _pipeline(pipeline, confined)


def seen_batches(name: str, limit: int, confined: KeyScope) -> list[dict[str, Any]]:
    """Raises UnknownPipelineError."""
    if not confined.is_free:
        seen_pipeline(name, confined)
    return [_batch(batch_document(batch), confined) for batch in newest_batches(name, limit)]


def seen_run(run_id: int, confined: KeyScope) -> MaintenanceRun:
    """Raises UnknownRunError, also for a run of another state than the API key's."""
    run = services.run(run_id)
    if not confined.sees(run.state_id):
        raise UnknownRunError(f"there is no maintenance run {run_id}")
    return run


def _sees(confined: KeyScope, pipeline: PipelineStatus) -> bool:
    return not confined.states or any(confined.sees(state) for state in pipeline.states)


def _pipeline(pipeline: PipelineStatus, confined: KeyScope) -> dict[str, Any]:
    document = pipeline_document(pipeline)
    return document | {"states": [state for state in pipeline.states if confined.sees(state)]}


def _batch(document: dict[str, Any], confined: KeyScope) -> dict[str, Any]:
    by_state = ("keys_written", "tasks")
    seen = {name: {state: told for state, told in document[name].items() if confined.sees(state)} for name in by_state}
    return document | seen


# The doors to pipelines, states and maintenance: parse, ask a selector or a service, answer.


MAX_LIST = 500


class StatesView(ApiView):
    @operations.states
    def get(self, request: Request) -> Response:
        confined = key_scope(request)
        return Response({"states": [state_document(state) for state in queries.states() if confined.sees(state.name)]})


class StateView(ApiView):
    @operations.state
    def get(self, request: Request, name: str) -> Response:
        key_scope(request).check_state(name)
        return Response(state_document(queries.state(name)))


class PipelinesView(ApiView):
    @operations.pipelines
    def get(self, request: Request) -> Response:
        return Response({"pipelines": seen_pipelines(key_scope(request))})


class PipelineView(ApiView):
    @operations.pipeline
    def get(self, request: Request, name: str) -> Response:
        return Response(seen_pipeline(name, key_scope(request)))


class BatchesView(ApiView):
    @operations.batches
    def get(self, request: Request, name: str) -> Response:
        return Response({"batches": seen_batches(name, _limit(request), key_scope(request))})


class PauseView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @operations.pause
    def post(self, request: Request, name: str) -> Response:
        key_scope(request).check_free()
        services.pause_pipeline(name=name, requested_by=_requester(request))
        return Response(pipeline_document(queries.pipeline(name)), status=202)


class ResumeView(ApiView):
    scopes = {"POST": Scope.MAINTAIN}
    permission = STEER_PIPELINES

    @operations.resume
    def post(self, request: Request, name: str) -> Response:
        key_scope(request).check_free()
        services.resume_pipeline(name=name, requested_by=_requester(request))
        return Response(pipeline_document(queries.pipeline(name)), status=202)


class StateMaintenanceView(ApiView):
    """Asks for a run; `kind` is set by the route."""

    kind = ""
    scopes = {"POST": Scope.MAINTAIN}

    def post(self, request: Request, name: str) -> Response:
        key_scope(request).check_whole_state(name)
        run = services.request_maintenance(kind=self.kind, state=name, requested_by=_requester(request))
        return _accepted(run)


class CompactionView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.COMPACTION

    @operations.compaction
    def post(self, request: Request, name: str) -> Response:
        return super().post(request, name)


class ExpiryView(StateMaintenanceView):
    kind = MaintenanceRun.Kind.EXPIRY

    @operations.expiry
    def post(self, request: Request, name: str) -> Response:
        return super().post(request, name)


class RunsView(ApiView):
    @operations.runs
    def get(self, request: Request) -> Response:
        found = services.runs(
            state=_text(request, "state"),
            kind=_choice(request, "kind", MaintenanceRun.Kind.values),
            status=_choice(request, "status", MaintenanceRun.Status.values),
            limit=_limit(request),
            states=key_scope(request).states,
        )
        return Response({"runs": [run_document(run) for run in found]})


class RunView(ApiView):
    scopes = {"DELETE": Scope.MAINTAIN}

    @operations.run
    def get(self, request: Request, run_id: int) -> Response:
        return Response(run_document(seen_run(run_id, key_scope(request))))

    @operations.cancel
    def delete(self, request: Request, run_id: int) -> Response:
        confined = key_scope(request)
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
