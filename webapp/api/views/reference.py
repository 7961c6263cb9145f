"""The description of the API: as OpenAPI, and the same as a page.

Anybody may read it, so a process builds it once and then only sends it. Building takes 1 to 3 s of CPU, and strangers
must not be able to spend that.
"""

import gzip
from dataclasses import dataclass
from functools import lru_cache

from django.http import HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.utils.timezone import now
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from drf_spectacular.views import SpectacularAPIView
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request

from tidegauge.webapp.api import general_openapi
from tidegauge.webapp.api.api_view import AllowedMethods
from tidegauge.webapp.api.general_openapi import BUILDING, Variant, variant
from tidegauge.webapp.api.reference import reference
from tidegauge.webapp.api.rendering import digest, is_known, not_modified


@dataclass(frozen=True)
class StoredAnswer:
    """An answer as it is sent: its body, the same compressed, and the ETag of both."""

    body: bytes
    compressed: bytes
    etag: str


@lru_cache(maxsize=4)
def _rendered(of: Variant, as_json: bool) -> StoredAnswer:
    body = (OpenApiJsonRenderer if as_json else OpenApiYamlRenderer)().render(general_openapi.document(of))
    return StoredAnswer(body, gzip.compress(body), f'"{digest(body)}"')


# By address, because the page has it in examples; ALLOWED_HOSTS may allow any.
@lru_cache(maxsize=16)
def _page(of: Variant, url: str, signed_in: bool) -> str:
    shown = {"reference": reference(general_openapi.document(of), url), "signed_in": signed_in}
    return render_to_string("dashboard/reference_body.html", shown)


class SchemaView(AllowedMethods, SpectacularAPIView):
    """Negotiates the format as drf-spectacular does, and sends what is built."""

    schema = None  # not a call of the API

    def get(self, request: Request) -> HttpResponse:
        renderer = request.accepted_renderer
        with BUILDING:
            stored = _rendered(variant(), renderer.format == "json")
        if is_known(stored.etag, request):
            return not_modified(stored.etag)
        headers = {"ETag": stored.etag, "Content-Disposition": f'inline; filename="tidegauge.{renderer.format}"'}
        body = stored.body
        if "gzip" in request.META.get("HTTP_ACCEPT_ENCODING", ""):
            body = stored.compressed
            headers["Content-Encoding"] = "gzip"
        answer = HttpResponse(body, content_type=renderer.media_type, headers=headers)
        patch_vary_headers(answer, ["Accept", "Accept-Encoding"])
        return answer


class DocsView(AllowedMethods):
    """The same document as a page."""

    schema = None  # not a call of the API
    authentication_classes = [SessionAuthentication]
    permission_classes = SchemaView.permission_classes

    def get(self, request: Request) -> HttpResponse:
        url, signed_in = request.build_absolute_uri("/").rstrip("/"), request.user.is_authenticated
        with BUILDING:
            body = _page(variant(), url, signed_in)
        return render(
            request._request, "dashboard/reference.html", {"body": body, "layout": "dashboard/base.html", "now": now()}
        )
