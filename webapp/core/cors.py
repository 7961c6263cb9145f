"""Which pages of other origins may call the API and open event streams (CORS), in the web and the events process.

Pages of TIDEGAUGE_CORS_ORIGINS may do both with a token or an API key, but never with their user's session, because no
answer allows them credentials. Pages of TIDEGAUGE_EVENTS_ORIGINS may open event streams, also with the session. This
replaces django-cors-headers, because the events process does not run Django's middleware.
"""

from collections.abc import Callable, Mapping

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

API_METHODS = "GET, HEAD, POST, DELETE"
ALLOWED_HEADERS = (
    "Accept, Authorization, Cache-Control, Content-Encoding, Content-Type, Idempotency-Key, If-None-Match, "
    "Last-Event-ID, X-Api-Key, X-Request-ID"
)
EXPOSED_HEADERS = (
    "Content-Disposition, Deprecation, ETag, Idempotent-Replayed, Link, Location, RateLimit, "
    "RateLimit-Policy, Retry-After, Sunset, Tidegauge-Epoch, Tidegauge-Txid, X-Request-ID"
)
# How long a browser keeps the answer to a preflight.
PREFLIGHT_SECONDS = 600


def is_allowed(origin: str) -> bool:
    """Return whether pages of an origin may send tokens and API keys."""
    return origin in settings.TIDEGAUGE_CORS_ORIGINS


def may_use_session(origin: str) -> bool:
    """Return whether pages of an origin may open event streams with their user's session."""
    return origin in settings.TIDEGAUGE_EVENTS_ORIGINS


def api_headers(origin: str | None) -> Mapping[str, str]:
    """Return the headers of the API's answer to a page, without Vary; empty if the page's origin is not allowed."""
    return _headers(origin) if origin is not None and is_allowed(origin) else {}


def events_headers(origin: str | None) -> Mapping[str, str]:
    vary = {"Vary": "Origin"}
    if origin is None or not (is_allowed(origin) or may_use_session(origin)):
        return vary
    credentials = {"Access-Control-Allow-Credentials": "true"} if may_use_session(origin) else {}
    return vary | _headers(origin) | credentials


def preflight_headers(answer: Mapping[str, str], methods: str) -> Mapping[str, str]:
    """Return the headers of the answer to a preflight. answer: the headers of any other answer to the page."""
    if "Access-Control-Allow-Origin" not in answer:
        return answer
    return {
        **answer,
        "Access-Control-Allow-Methods": methods,
        "Access-Control-Allow-Headers": ALLOWED_HEADERS,
        "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
    }


def _headers(origin: str) -> dict[str, str]:
    return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED_HEADERS}


class CrossOrigin:
    """Middleware. Answers preflights of allowed origins, and lets their pages read the answers of the API."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not settings.TIDEGAUGE_CORS_ORIGINS or not request.path_info.startswith("/api/"):
            return self._get_response(request)
        headers = api_headers(request.META.get("HTTP_ORIGIN"))
        is_preflight = request.method == "OPTIONS" and "HTTP_ACCESS_CONTROL_REQUEST_METHOD" in request.META
        if is_preflight and headers:
            response: HttpResponseBase = HttpResponse(status=204, headers=preflight_headers(headers, API_METHODS))
            del response["Content-Type"]
        else:
            response = self._get_response(request)
            for name, value in headers.items():
                response[name] = value
        patch_vary_headers(response, ["Origin"])
        return response
