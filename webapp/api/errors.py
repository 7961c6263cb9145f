"""Errors as problem details (RFC 9457), the one shape of all answers of the API that are not a success."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import psycopg
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import csrf, defaults
from rest_framework import exceptions
from rest_framework.views import set_rollback

from tidegauge.state_backends.errors import (
    BackendUnavailable,
    FilterError,
    FindingError,
    FormerPipelineError,
    FormerStateError,
    KeyShapeError,
    MovedOnError,
    NotCommittedError,
    OutOfReachError,
    RangeTooLargeError,
    SpecError,
    StateBusyError,
    TilesGoneError,
    UnknownPipelineError,
    UnknownStateError,
)
from tidegauge.webapp.accounts.concurrency import BusyError, TooManyAtOnceError
from tidegauge.webapp.accounts.permissions import OutsideError
from tidegauge.webapp.accounts.revoked_tokens import TooManyRevokedError, UnknownTokenError
from tidegauge.webapp.accounts.tokens import RefusedTokenError
from tidegauge.webapp.api.entries import InvalidCursorError, PagesGoneError
from tidegauge.webapp.api.fields import TooManyKeysError
from tidegauge.webapp.api.lookups import NotReachedError, OtherEpochError, WrongLookupError
from tidegauge.webapp.api.one_key import KeyNotFoundError
from tidegauge.webapp.api.parameters import UnknownParameterError
from tidegauge.webapp.api.problems import MEDIA_TYPE, codes_of, problem
from tidegauge.webapp.api.rendering import RequestTooLargeError, UnreadableJsonError
from tidegauge.webapp.api.saved_queries.selectors import BrokenQueryError, UnknownQueryError, WithdrawnQueryError
from tidegauge.webapp.catalog.runs import UnfinishedRunError, UnknownRunError
from tidegauge.webapp.core.pooler import NoSessionError
from tidegauge.webapp.core.unavailable import unavailable_page
from tidegauge.webapp.maintenance.idempotency import IdempotencyKeyReusedError
from tidegauge.webapp.maintenance.replay import NotDrivenError, NothingToReplayError, ReplayUnderWayError
from tidegauge.webapp.maintenance.services import BrokerUnavailableError, RunFinishedError

# What a class does not name itself, its base does. The status is that of the code.
CODE_OF: Mapping[type[Exception], str] = {
    SpecError: "invalid_request",
    KeyShapeError: "invalid_key",
    WrongLookupError: "invalid_key",
    FilterError: "invalid_filter",
    RangeTooLargeError: "range_too_large",
    UnreadableJsonError: "invalid_json",
    InvalidCursorError: "invalid_cursor",
    UnknownParameterError: "unknown_parameter",
    TooManyKeysError: "too_many_keys",
    RequestTooLargeError: "request_too_large",
    OutsideError: "outside_key_scope",
    FormerStateError: "former_state",
    FormerPipelineError: "former_pipeline",
    UnknownStateError: "unknown_state",
    UnknownPipelineError: "unknown_pipeline",
    KeyNotFoundError: "key_not_found",
    UnknownRunError: "unknown_run",
    UnknownTokenError: "unknown_token",
    UnknownQueryError: "unknown_query",
    WithdrawnQueryError: "withdrawn_query",
    BrokenQueryError: "broken_query",
    StateBusyError: "state_busy",
    UnfinishedRunError: "run_unfinished",
    RunFinishedError: "run_finished",
    NothingToReplayError: "nothing_to_replay",
    ReplayUnderWayError: "replay_under_way",
    NotDrivenError: "pipeline_not_driven",
    TooManyRevokedError: "too_many_revoked_tokens",
    IdempotencyKeyReusedError: "idempotency_key_reused",
    BrokerUnavailableError: "task_queue_unavailable",
    TooManyAtOnceError: "too_many_at_once",
    BusyError: "busy",
    OutOfReachError: "out_of_reach",
    TilesGoneError: "tiles_gone",
    PagesGoneError: "pages_gone",
    NotCommittedError: "not_committed",
    NotReachedError: "not_reached",
    OtherEpochError: "other_epoch",
    FindingError: "state_not_served",
    MovedOnError: "changed_while_reading",
    BackendUnavailable: "store_unavailable",
    NoSessionError: "exports_unavailable",  # nothing else in a request needs a session
    # Django's and DRF's
    PermissionDenied: "permission_denied",
    Http404: "not_found",
    exceptions.ParseError: "invalid_request",
    exceptions.NotAuthenticated: "unauthenticated",
    RefusedTokenError: "token_refused",
    exceptions.AuthenticationFailed: "invalid_credentials",
    exceptions.PermissionDenied: "permission_denied",
    exceptions.MethodNotAllowed: "method_not_allowed",
    exceptions.NotAcceptable: "not_acceptable",
    exceptions.UnsupportedMediaType: "unsupported_media_type",
    exceptions.Throttled: "too_many_requests",
}

# Attributes of errors, and the members of a problem that show them.
MEMBER_OF = {"index": "index", "lookup": "lookup", "oldest": "oldest_txid", "newest": "committed_txid"}

RETRY = {"Retry-After": "1"}

# From the library's connection and from Django's.
DATABASE_GONE = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError)


def problem_response(error: Exception, context: Mapping[str, Any]) -> HttpResponse | None:
    """DRF's exception handler. Returns None for unexpected errors, which reach the log and `server_error`.

    Problems are JSON, whatever the call would have answered.
    """
    body, headers = _expected(error)
    if body is None:
        return None
    set_rollback()
    return _response(body, headers)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    answer = _answer(request, "not_found", f"there is nothing at {request.path}")
    return answer or _page(defaults.page_not_found, request, exception)


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(defaults.permission_denied, request, exception)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return _page(csrf.csrf_failure, request, reason)


def server_error(request: HttpRequest) -> HttpResponse:
    answer = _answer(request, "internal_error", "internal error; the log has the details")
    return answer or defaults.server_error(request)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _answer(request, "invalid_request", "the request is malformed") or defaults.bad_request(request, exception)


def _page(view: Callable[..., HttpResponse], request: HttpRequest, cause: object) -> HttpResponse:
    """Return an error's page, which names who is signed in and the problems of pipelines; no middleware guards it."""
    try:
        return view(request, cause)
    except DATABASE_GONE as gone:
        return unavailable_page(request, gone)


def code_of(kind: type[Exception]) -> str | None:
    """Return the code of an error's class; None for one that no client is to be told of."""
    code = next((CODE_OF[each] for each in kind.__mro__ if each in CODE_OF), None)
    if code is None and issubclass(kind, exceptions.APIException):
        return next(iter(codes_of(kind.status_code)), "internal_error")
    return code


def _expected(error: Exception) -> tuple[dict[str, Any] | None, dict[str, str]]:
    if isinstance(error, BackendUnavailable):
        return problem("store_unavailable", "the store of this state does not answer; try again shortly"), RETRY
    code = code_of(type(error))
    if code is not None:
        return problem(code, _detail(error), **_members(error)), _headers(error)
    if _timed_out(error):
        return problem("time_limit_exceeded", "the request exceeded the time limit; request less at a time"), {}
    if isinstance(error, DATABASE_GONE):
        return problem("database_unavailable", "the database does not answer; try again shortly"), RETRY
    return None, {}


def _detail(error: Exception) -> str:
    if isinstance(error, Http404):
        return "this does not exist"
    return str(getattr(error, "detail", error)) or "this is not allowed"


def _members(error: Exception) -> dict[str, Any]:
    found = {member: getattr(error, name, None) for name, member in MEMBER_OF.items()}
    return {member: value for member, value in found.items() if value is not None} | getattr(error, "members", {})


def _timed_out(error: Exception) -> bool:
    # Django wraps what psycopg raised.
    return isinstance(error, psycopg.errors.QueryCanceled) or isinstance(error.__cause__, psycopg.errors.QueryCanceled)


def _headers(error: Exception) -> dict[str, str]:
    scheme = getattr(error, "auth_header", None)
    wait = 1 if isinstance(error, MovedOnError) else getattr(error, "wait", None)
    return ({"WWW-Authenticate": scheme} if scheme else {}) | ({"Retry-After": f"{wait:.0f}"} if wait else {})


def _answer(request: HttpRequest, code: str, detail: str) -> HttpResponse | None:
    """Return a problem for a path of the API, None for that of a page."""
    return _response(problem(code, detail), {}) if request.path.startswith(("/api/", "/admin/v1/")) else None


def _response(body: dict[str, Any], headers: Mapping[str, str]) -> HttpResponse:
    return HttpResponse(orjson.dumps(body), status=body["status"], headers=headers, content_type=MEDIA_TYPE)


def events_are_elsewhere(request: HttpRequest, rest: str = "") -> HttpResponse:
    """Answer a request for events in the web process, where a stream would block one of its few threads."""
    if rest == "tide" and settings.SESSION_COOKIE_NAME in request.COOKIES:
        # A page of the dashboard, which polls instead. A browser reports an error to its console, but not a 204.
        return HttpResponse(status=204, headers={"Cache-Control": "no-store"})
    where = settings.TIDEGAUGE_EVENTS_URL
    hint = f"they are at {where}{request.path}" if where else "have the proxy send /events/ there, or ask it directly"
    body = problem("events_elsewhere", f"events come from the events process, which this is not; {hint}")
    return _response(body, {"Cache-Control": "no-store"})
