"""The Content-Security-Policy of each answer: what a browser may load and run, where it may connect, who may frame it.

Only the frame of a board may be framed, by pages of the origins in TIDEGAUGE_FRAME_ORIGINS.

The dashboard loads only files from this server; of styles within a page, only its own style sheets apply, by their
digests. The admin's theme also evaluates expressions in attributes and writes styles (Alpine). No inline script is
allowed anywhere.
"""

from collections.abc import Callable, Mapping
from functools import cache
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from tidegauge.webapp.core import first_paint

PAGES = {
    "default-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
ADMIN = PAGES | {
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data:",
}
# It has no forms, so that a page around it can make nobody send one.
FRAME = PAGES | {"form-action": "'none'"}
FRAME_VIEW = "dashboard:frame"
API = {"default-src": "'none'", "frame-ancestors": "'none'"}

# SecurityMiddleware adds nosniff and the opener policy.
OTHER_HEADERS = {
    "X-Frame-Options": settings.X_FRAME_OPTIONS,
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ContentSecurityPolicy:
    """Middleware. It comes early, so that answers of later middleware get a policy, too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        response.headers.setdefault("Content-Security-Policy", policy_of(request))
        others = OTHER_HEADERS
        if is_frame(request):
            # Browsers that know frame-ancestors ignore X-Frame-Options, but not all of them know it.
            others = {name: value for name, value in others.items() if name != "X-Frame-Options"}
            del response.headers["X-Frame-Options"]
        for name, value in others.items():
            response.headers.setdefault(name, value)
        return response


def is_frame(request: HttpRequest) -> bool:
    """Return whether pages of other origins may show the answer in a frame."""
    match = request.resolver_match
    return bool(settings.TIDEGAUGE_FRAME_ORIGINS) and match is not None and match.view_name == FRAME_VIEW


def policy_of(request: HttpRequest) -> str:
    """Return the policy of the admin, the API or the dashboard, which the API's reference has, too."""
    match = request.resolver_match
    if match is not None and match.app_name == "admin":
        return _ADMIN
    if is_frame(request):
        return _joined(FRAME | {"frame-ancestors": " ".join(settings.TIDEGAUGE_FRAME_ORIGINS)})
    is_page = match is not None and match.view_name in ("docs", "docs_call")
    if request.path.startswith("/api/") and not is_page:
        return _API
    return _pages(settings.TIDEGAUGE_EVENTS_URL)


@cache
def _pages(events_url: str) -> str:
    """Allow connections to the events process, which may have an origin of its own."""
    parts = urlsplit(events_url)
    connections = {"connect-src": f"'self' {parts.scheme}://{parts.netloc}"} if parts.netloc else {}
    return _joined(PAGES | {"style-src": f"'self' {first_paint.sources()}"} | connections)


def _joined(policy: Mapping[str, str]) -> str:
    return "; ".join(f"{directive} {sources}" for directive, sources in policy.items())


_ADMIN, _API = _joined(ADMIN), _joined(API)
