"""Authorizes subscriptions before a stream begins, with the API's authentication, scopes, rate limits and problems.

It runs in a thread with a Django request, so that the same code decides about event streams and API requests. Pages of
other origins may subscribe only if the settings list the origin (see core/cors.py).
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import DisallowedHost, PermissionDenied
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404
from rest_framework.exceptions import ParseError
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tidegauge.webapp.accounts import usage
from tidegauge.webapp.accounts.permissions import api_key, key_scope
from tidegauge.webapp.accounts.tokens import is_token
from tidegauge.webapp.catalog.visible import without_names
from tidegauge.webapp.core import cors, proxies
from tidegauge.webapp.events.deltas import EventId
from tidegauge.webapp.events.subscriptions import Subscription, commits_subscription, state_subscription

STATES_PATH = "/events/states/"
COMMITS_PATH = "/events/tide"
TOKEN = b"token="  # in a query string


@dataclass(frozen=True)
class Authorized:
    """caller: the API key or user whose clients are counted together. last_id: from `Last-Event-ID`.

    key_prefix: the API key's prefix; None for a session. state: the state that is followed; empty for commits.
    """

    subscription: Subscription
    caller: str
    last_id: EventId | None
    key_prefix: str | None
    state: str

    def count_bytes(self, sent: int) -> None:
        if self.key_prefix is not None and sent:
            usage.count(self.key_prefix, {self.state: 0}, sent, requests=0)


@dataclass(frozen=True)
class Refused:
    status: int
    headers: Mapping[str, str]
    body: bytes


def with_token_in_header(scope: Mapping[str, Any]) -> Mapping[str, Any]:
    """Move a token from the query parameter `token`, which EventSource has to use, to the header `Authorization`.

    An API key, or a token beside other credentials, is not moved, and is refused later.
    """
    parts = scope["query_string"].split(b"&")
    tokens = [part.removeprefix(TOKEN) for part in parts if part.startswith(TOKEN)]
    others = {b"authorization", b"x-api-key"} & {name.lower() for name, _ in scope["headers"]}
    if others or len(tokens) != 1 or not is_token(tokens[0].decode("latin-1")):
        return scope
    rest = b"&".join(part for part in parts if not part.startswith(TOKEN))
    return {**scope, "query_string": rest, "headers": [*scope["headers"], (b"authorization", b"Bearer " + tokens[0])]}


def authorize(scope: Mapping[str, Any], *, recheck: bool = False) -> Authorized | Refused:
    """Authorize a request. recheck: the client is already connected, so this does not count for its rate limit."""
    view = AuthorizationView.as_view(is_recheck=recheck)
    request = ASGIRequest(dict(scope), io.BytesIO())
    proxies.notice(request.META)
    middleware: Any = SessionMiddleware(AuthenticationMiddleware(cast(Any, view)))
    response = middleware(request)
    if not recheck:
        usage.observe_state(request, response.status_code, _state(request.path))
    if isinstance(response, Response) and isinstance(response.data, Authorized):
        return response.data
    if isinstance(response, Response):
        response.render()
    return Refused(response.status_code, dict(response.headers), response.content)


class EventStreamRenderer(BaseRenderer):
    """Lets requests that accept `text/event-stream` pass content negotiation. It renders only problems."""

    media_type = "text/event-stream"
    format = "sse"
    charset = None

    def render(self, data: Any, accepted_media_type=None, renderer_context=None) -> bytes:
        return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)


class AuthorizationView(APIView):
    """Its response has an Authorized as its data, or a problem."""

    renderer_classes = [EventStreamRenderer]
    http_method_names = ["get"]
    is_recheck = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if "token" in request.query_params:
            raise ParseError(
                "the parameter token takes one short-lived token, without other credentials; send an API key in the "
                "header Authorization"
            )
        super().initial(request, *args, **kwargs)

    def get(self, request: Request) -> Response:
        subscription = _subscription(request)
        key = api_key(request)
        caller = f"user {request.user.pk}" if key is None else f"key {key.pk}"
        prefix = None if key is None else key.prefix
        return Response(Authorized(subscription, caller, _last_id(request), prefix, _state(request.path)))

    def handle_exception(self, error: Exception) -> Response:
        return super().handle_exception(without_names(error, self.request))

    def check_throttles(self, request: Request) -> None:
        if not self.is_recheck:
            super().check_throttles(request)


def _state(path: str) -> str:
    return path.removeprefix(STATES_PATH) if path.startswith(STATES_PATH) else ""


def _subscription(request: Request) -> Subscription:
    _check_host(request)
    path, parameters = request.path, dict(request.query_params.lists())
    if path == COMMITS_PATH:
        return commits_subscription(parameters, key_scope(request))
    name = path.removeprefix(STATES_PATH)
    if not path.startswith(STATES_PATH) or not name or "/" in name or "\0" in name:
        raise Http404
    return state_subscription(name, parameters, key_scope(request))


def _check_host(request: Request) -> None:
    try:
        host = request.get_host()
    except DisallowedHost:
        raise ParseError("the Host header does not name this server") from None
    origin = request.headers.get("Origin")
    if origin is None or cors.may_use_session(origin) or origin.partition("://")[2] == host:
        return
    if not cors.is_allowed(origin):
        raise PermissionDenied("pages of this origin may not subscribe; see TIDEGAUGE_CORS_ORIGINS")
    if api_key(request) is None:
        raise PermissionDenied("pages of this origin may subscribe only with a token; see TIDEGAUGE_EVENTS_ORIGINS")


def _last_id(request: Request) -> EventId | None:
    text = request.headers.get("Last-Event-ID", "").strip()
    try:
        return EventId.parse(text) if text else None
    except ValueError:
        raise ParseError(f"Last-Event-ID must be the id of an event, got {text[:40]!r}") from None
