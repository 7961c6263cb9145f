"""Pages of other origins that may listen with their reader's session: exactly those of the settings, never all."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson
from django.conf import settings
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

from webapp.accounts.permissions import api_key, key_scope
from webapp.events.subscriptions import Subscription, state_question, tide_question

ALLOWED_HEADERS = "Authorization, X-Api-Key, Last-Event-ID, X-Request-ID, Cache-Control"


def is_welcome(origin: str) -> bool:
    return origin in settings.TIDEMARK_EVENTS_ORIGINS


def cors_headers(origin: str | None) -> dict[str, str]:
    if origin is None or not is_welcome(origin):
        return {"Vary": "Origin"}
    return {
        "Vary": "Origin",
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Expose-Headers": "X-Request-ID, Retry-After",
    }


def preflight_headers(origin: str | None) -> dict[str, str]:
    allowed = {"Access-Control-Allow-Methods": "GET", "Access-Control-Allow-Headers": ALLOWED_HEADERS}
    return cors_headers(origin) | (allowed if origin is not None and is_welcome(origin) else {})


# The door: who may listen, to what. The API's own authentication, scopes, rates and problems, before a stream begins.
#
# It runs in a thread with Django's request, so that nothing is decided here that the API decides elsewhere.


STATES = "/events/states/"
TIDE = "/events/tide"

# Digits, and one more.
LONGEST_TXID = 20


@dataclass(frozen=True)
class Admitted:
    """caller: whom a limit of clients counts, an API key or a user."""

    question: Subscription
    caller: str
    last_txid: int | None


@dataclass(frozen=True)
class Refused:
    status: int
    headers: Mapping[str, str]
    body: bytes


class EventStreamRenderer(BaseRenderer):
    """Lets clients in that accept an event stream; itself it only ever writes problems."""

    media_type = "text/event-stream"
    format = "sse"
    charset = None

    def render(self, data: Any, accepted_media_type=None, renderer_context=None) -> bytes:
        return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)


class Authorizer(APIView):
    """Answers with an Admitted as its data, or with a problem."""

    renderer_classes = [EventStreamRenderer]
    http_method_names = ["get"]
    # Set where a client is asked again whether it still may, which is no request of its own.
    is_second_look = False

    def get(self, request: Request) -> Response:
        question = _question(request)
        key = api_key(request)
        caller = f"user {request.user.pk}" if key is None else f"key {key.pk}"
        return Response(Admitted(question, caller, _last_txid(request)))

    def check_throttles(self, request: Request) -> None:
        if not self.is_second_look:
            super().check_throttles(request)


def ask(scope: Mapping[str, Any], *, again: bool = False) -> Admitted | Refused:
    """Return whether a request may listen. again: asked before, and listening since."""
    view = Authorizer.as_view(is_second_look=again)
    request = ASGIRequest(dict(scope), io.BytesIO())
    middleware: Any = SessionMiddleware(AuthenticationMiddleware(cast(Any, view)))
    response = middleware(request)
    if isinstance(response, Response) and isinstance(response.data, Admitted):
        return response.data
    if isinstance(response, Response):
        response.render()
    return Refused(response.status_code, dict(response.headers), response.content)


def _question(request: Request) -> Subscription:
    _check_host(request)
    path = request.path
    if path == TIDE:
        return tide_question(key_scope(request))
    name = path.removeprefix(STATES)
    if not path.startswith(STATES) or not name or "/" in name or "\0" in name:
        raise Http404
    return state_question(name, dict(request.query_params.lists()), key_scope(request))


def _check_host(request: Request) -> None:
    try:
        host = request.get_host()
    except DisallowedHost:
        raise ParseError("the Host header names no host of this server") from None
    origin = request.headers.get("Origin")
    if origin is not None and not is_welcome(origin) and origin.partition("://")[2] != host:
        raise PermissionDenied("pages of this origin may not listen; see TIDEMARK_EVENTS_ORIGINS")


def _last_txid(request: Request) -> int | None:
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < LONGEST_TXID and int(text) < 1 << 63):
        raise ParseError(f"Last-Event-ID must be a txid that an event had as its id, got {text[:40]!r}")
    return int(text)
