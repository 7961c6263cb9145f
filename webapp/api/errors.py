"""Errors as problem details (RFC 9457), the one shape of all answers of the API that are not a success."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
import psycopg
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from rest_framework import exceptions
from rest_framework.views import set_rollback
from structlog.contextvars import get_contextvars

from state_backends.errors import (
    BackendUnavailable,
    FilterError,
    FindingError,
    FormerPipelineError,
    FormerStateError,
    KeyShapeError,
    MovedOnError,
    NotCommittedError,
    OutOfReachError,
    SpecError,
    StateBusyError,
    UnknownPipelineError,
    UnknownStateError,
)
from webapp.states.idempotency import IdempotencyKeyReusedError
from webapp.states.services import BrokerUnavailableError, RunFinishedError, UnfinishedRunError, UnknownRunError

MEDIA_TYPE = "application/problem+json"

STATUS_OF: Mapping[type[Exception], HTTPStatus] = {
    SpecError: HTTPStatus.BAD_REQUEST,
    KeyShapeError: HTTPStatus.BAD_REQUEST,
    FilterError: HTTPStatus.BAD_REQUEST,
    FormerStateError: HTTPStatus.GONE,
    FormerPipelineError: HTTPStatus.GONE,
    UnknownStateError: HTTPStatus.NOT_FOUND,
    UnknownPipelineError: HTTPStatus.NOT_FOUND,
    UnknownRunError: HTTPStatus.NOT_FOUND,
    StateBusyError: HTTPStatus.CONFLICT,
    UnfinishedRunError: HTTPStatus.CONFLICT,
    RunFinishedError: HTTPStatus.CONFLICT,
    IdempotencyKeyReusedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    BrokerUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    OutOfReachError: HTTPStatus.GONE,
    NotCommittedError: HTTPStatus.CONFLICT,
    FindingError: HTTPStatus.SERVICE_UNAVAILABLE,
}

# Attributes of errors, and the members of a problem that show them.
MEMBER_OF = {"index": "index", "query": "query", "oldest": "oldest_txid", "newest": "committed_txid"}

# From the library's connection and from Django's.
DATABASE_GONE = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError)


def problem(status: int, detail: str, **members: Any) -> dict[str, Any]:
    """Return a problem document. members: further ones, for programs."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **members}
    request_id = get_contextvars().get("request_id")
    return body | {"request_id": str(request_id)} if request_id else body


def problem_response(error: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """DRF's exception handler. Returns None for unexpected errors, which reach the log and `server_error`.

    Problems are JSON, whatever the call would have answered.
    """
    body, headers = _expected(error)
    if body is None:
        return None
    set_rollback()
    return HttpResponse(orjson.dumps(body), status=body["status"], headers=headers, content_type=MEDIA_TYPE)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 404, f"there is nothing at {request.path}") or defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    return _answer(request, 500, "internal error; the log has the details") or defaults.server_error(request)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, 400, "the request is malformed") or defaults.bad_request(request, exception)


def _expected(error: Exception) -> tuple[dict[str, Any] | None, dict[str, str]]:
    status = next((STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF), None)
    if status is not None:
        return problem(status, str(error), **_members(error)), {}
    if isinstance(error, Http404):
        return problem(404, "this does not exist"), {}
    if isinstance(error, PermissionDenied):
        return problem(403, str(error) or "this is not allowed", **_members(error)), {}
    if isinstance(error, exceptions.APIException):
        return problem(error.status_code, str(error.detail), **_members(error)), _headers(error)
    if isinstance(error, MovedOnError):
        return problem(503, str(error)), {"Retry-After": "1"}
    if isinstance(error, BackendUnavailable):
        return problem(503, "the store of this state does not answer; try again shortly"), {"Retry-After": "1"}
    if _timed_out(error):
        return problem(504, "the request exceeded the time limit; request less at a time"), {}
    if isinstance(error, DATABASE_GONE):
        return problem(503, "the database does not answer; try again shortly"), {"Retry-After": "1"}
    return None, {}


def _members(error: Exception) -> dict[str, Any]:
    found = {member: getattr(error, name, None) for name, member in MEMBER_OF.items()}
    return {member: value for member, value in found.items() if value is not None} | getattr(error, "members", {})


def _timed_out(error: Exception) -> bool:
    # Django wraps what psycopg raised.
    return isinstance(error, psycopg.errors.QueryCanceled) or isinstance(error.__cause__, psycopg.errors.QueryCanceled)


def _headers(error: exceptions.APIException) -> dict[str, str]:
    scheme = getattr(error, "auth_header", None)
    wait = getattr(error, "wait", None)
    return ({"WWW-Authenticate": scheme} if scheme else {}) | ({"Retry-After": f"{wait:.0f}"} if wait else {})


def _answer(request: HttpRequest, status: int, detail: str) -> HttpResponse | None:
    """Return a problem for a path of the API, None for that of a page."""
    if not request.path.startswith("/api/"):
        return None
    return HttpResponse(orjson.dumps(problem(status, detail)), status=status, content_type=MEDIA_TYPE)


def events_are_elsewhere(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Answer a request for events in the web process, where a stream would block one of its few threads."""
    where = settings.TIDEMARK_EVENTS_URL
    hint = f"they are at {where}{request.path}" if where else "have the proxy send /events/ there, or ask it directly"
    body = problem(421, f"events come from the events process, which this is not; {hint}")
    return HttpResponse(orjson.dumps(body), status=421, content_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})
