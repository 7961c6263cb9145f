"""Who may store an answer of the API: its client alone, and what an answer depends on beside its address.

Two API keys get two answers at one address, because each has its own scope. So no shared cache may store any, and a
client has to ask again with the ETag of what it has stored. What has no ETag is not stored at all.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import patch_vary_headers

# Addresses of calls: of the API, and of the administration by programs.
CALLS = ("/api/v1/", "/admin/v1/")

DEPENDS_ON = ("Authorization", "X-Api-Key", "Cookie", "Accept-Encoding")
VARY = ", ".join(DEPENDS_ON)

ASK_AGAIN, NEVER_STORE = "private, no-cache", "no-store"


class PrivateAnswers:
    """Middleware. Outside of those that answer themselves, so that their answers get the headers, too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        if not request.path_info.startswith(CALLS):
            return response
        has_etag = "ETag" in response.headers and response.status_code in (200, 304)
        response.headers.setdefault("Cache-Control", ASK_AGAIN if has_etag else NEVER_STORE)
        if "Vary" in response.headers:
            patch_vary_headers(response, DEPENDS_ON)
        else:
            response.headers["Vary"] = VARY
        return response
