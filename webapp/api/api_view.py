"""What the views of all calls share: the check of parameters, ETags, who the caller is, the header of a next page."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse, HttpResponseBase
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from tidegauge.webapp.accounts.permissions import api_key, key_scope
from tidegauge.webapp.api.export import FORMATS
from tidegauge.webapp.api.parameters import check_parameters, parameters_of
from tidegauge.webapp.api.rendering import conditional
from tidegauge.webapp.api.requests import RequestSerializer
from tidegauge.webapp.catalog.visible import Visible, without_names


class AllowedMethods(APIView):
    """Answers OPTIONS with the methods only; DRF's own answer describes serializers."""

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return HttpResponse(status=204, headers={"Allow": ", ".join(self.allowed_methods)})


class ApiView(AllowedMethods):
    """Gives every answer to a GET an ETag, a digest of the document; a client that sends it back gets a 304."""

    # By method; a method that is not listed has none.
    parameters: Mapping[str, type[RequestSerializer]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        self.check_parameters(request)

    def check_parameters(self, request: Any) -> None:
        """Raises UnknownParameterError."""
        # Another method is a 405, whatever its parameters.
        if request.META.get("QUERY_STRING") and request.method in {*self.allowed_methods} - {"OPTIONS"}:
            method = "GET" if request.method == "HEAD" else request.method
            check_parameters(request.GET, parameters_of(self.parameters.get(method)))

    def handle_exception(self, error: Exception) -> Response:
        return super().handle_exception(without_names(error, self.request))

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        if request.method in ("GET", "HEAD") and answer.status_code == 200 and isinstance(answer, Response):
            answer.add_post_render_callback(partial(conditional, request))
        return answer


class FileView(ApiView):
    """Streams a file in one of its formats: that of the parameter `format`, for links, or else of the header Accept."""

    formats: Sequence[str] = ()

    @property
    def default_response_headers(self) -> dict[str, str]:
        # DRF adds it only where the class itself lists several renderers.
        return super().default_response_headers | {"Vary": "Accept"}

    def get_renderers(self) -> list[BaseRenderer]:
        return [_renderer(name) for name in self.formats]

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        asked = request.query_params.get("format")
        if not asked:
            return super().perform_content_negotiation(request, force)
        renderers = self.get_renderers()
        # An unknown format is refused with the other parameters.
        chosen = next((each for each in renderers if each.format == asked), renderers[0])
        return chosen, chosen.media_type


def _renderer(name: str) -> BaseRenderer:
    """Return what stands for a format in content negotiation; files are streamed, not rendered."""
    renderer = BaseRenderer()
    renderer.format, renderer.media_type = name, FORMATS[name].media_type
    return renderer


def link_to_next(request: Request, cursor: str | None) -> dict[str, str]:
    """Return the header that says where the next page is."""
    if cursor is None:
        return {}
    limit = request.query_params.get("limit")
    again = {"cursor": cursor} | ({"limit": limit} if limit else {})
    return {"Link": f'<{request.path}?{urlencode(again)}>; rel="next"'}


def requester(request: Request) -> str:
    """Return the name under which a run or a pause records who asked for it."""
    key = api_key(request)
    return request.user.get_username() if key is None else f"API key {key.name}"


def visible_to(request: Request) -> Visible:
    return Visible(key_scope(request), requester(request))
