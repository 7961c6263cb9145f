"""The description of the API: as OpenAPI, and the same as pages.

Anybody may read it, so a process builds it once and then only sends it. Building takes 1 to 3 s of CPU, and strangers
must not be able to spend that.
"""

import gzip
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django.utils.timezone import now
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from drf_spectacular.views import SpectacularAPIView
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request

from tidegauge.webapp.api import general_openapi
from tidegauge.webapp.api.api_view import AllowedMethods
from tidegauge.webapp.api.general_openapi import BUILDING, Variant, variant
from tidegauge.webapp.api.own_values import FilledIn, OwnValues
from tidegauge.webapp.api.reference import Reference, reference
from tidegauge.webapp.api.rendering import digest, is_known, not_modified
from tidegauge.webapp.catalog.visible import of_request


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


# By address, because the pages have it in examples; ALLOWED_HOSTS may allow any.
@lru_cache(maxsize=16)
def _arranged(of: Variant, url: str) -> Reference:
    return reference(general_openapi.document(of), url)


# As people see them who have not signed in; a process has some 40 for each address.
@lru_cache(maxsize=160)
def _for_strangers(of: Variant, url: str, operation_id: str) -> str:
    return _rendered_page(_arranged(of, url), operation_id, None)


def _rendered_page(arranged: Reference, operation_id: str, own: OwnValues | None) -> str:
    """operation_id: empty for the list of all calls."""
    operation = arranged.operation(operation_id)
    shown: dict[str, Any] = {"reference": arranged, "operation": operation, "own": own}
    if operation is not None:
        shown |= {"call": FilledIn.of(operation, own)}
    return render_to_string("dashboard/reference_call.html" if operation else "dashboard/reference_body.html", shown)


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
    """The same document as pages: one of all calls, and one for each call, which a signed-in reader can run there."""

    schema = None  # not a call of the API
    authentication_classes = [SessionAuthentication]
    permission_classes = SchemaView.permission_classes

    def get(self, request: Request, operation_id: str = "") -> HttpResponse:
        url = request.build_absolute_uri("/").rstrip("/")
        with BUILDING:
            arranged = _arranged(variant(), url)
            operation = arranged.operation(operation_id)
            if operation_id and operation is None:
                raise Http404
            body = "" if request.user.is_authenticated else _for_strangers(variant(), url, operation_id)
        if request.user.is_authenticated:
            own = OwnValues.of(of_request(request), request.query_params.get("state", ""))
            body = _rendered_page(arranged, operation_id, own)
        shown = {"body": body, "operation": operation, "layout": "dashboard/base.html", "now": now()}
        answer = render(request._request, "dashboard/reference.html", shown)
        if request.user.is_authenticated:
            add_never_cache_headers(answer)
        return answer
