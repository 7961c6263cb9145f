"""What a browser may load, run and send on our pages, and who may frame them: the Content-Security-Policy.

Ours need nothing but what this machine serves in files. The admin's theme evaluates expressions in attributes and
writes styles (Alpine), the API's documentation writes styles (Swagger): they get that much more, and no inline script.
"""

from collections.abc import Callable, Mapping
from functools import cache
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse

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
DOCS = PAGES | {"style-src": "'self' 'unsafe-inline'", "img-src": "'self' data:"}
# Nothing of these is a page.
API = {"default-src": "'none'", "frame-ancestors": "'none'"}

# Every answer says so, too; SecurityMiddleware adds nosniff and the opener policy.
BESIDE = {
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ContentSecurityPolicy:
    """Middleware, among the first: what those after it answer themselves gets a policy, too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        response.headers.setdefault("Content-Security-Policy", policy_of(request))
        for name, value in BESIDE.items():
            response.headers.setdefault(name, value)
        return response


def policy_of(request: HttpRequest) -> str:
    """Return the policy of the place that has answered a request."""
    match = request.resolver_match
    if match is not None and match.app_name == "admin":
        return _ADMIN
    if match is not None and match.view_name == "docs":
        return _DOCS
    if request.path.startswith("/api/"):
        return _API
    return _pages(settings.TIDEMARK_EVENTS_URL)


@cache
def _pages(events_url: str) -> str:
    """Let pages connect to the process of the push, which may have an origin of its own."""
    parts = urlsplit(events_url)
    return _written(PAGES | ({"connect-src": f"'self' {parts.scheme}://{parts.netloc}"} if parts.netloc else {}))


def _written(policy: Mapping[str, str]) -> str:
    return "; ".join(f"{directive} {sources}" for directive, sources in policy.items())


_ADMIN, _DOCS, _API = _written(ADMIN), _written(DOCS), _written(API)
