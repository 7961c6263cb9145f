"""What all doors of the API have in common beyond DRF: ETags on what is read, OPTIONS, routes on their way out."""

from functools import partial
from typing import Any

from django.conf import settings
from django.http import HttpResponse, HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from state_backends.errors import UnknownNameError
from webapp.api_keys.confinement import confinement
from webapp.lookup import deprecation, etag


class ApiView(APIView):
    """A GET whose answer the client knows already costs it a 304: the ETag is a digest of the document."""

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        return Response(status=204, headers={"Allow": ", ".join(self.allowed_methods)})

    def handle_exception(self, error: Exception) -> Response:
        if isinstance(error, UnknownNameError) and not confinement(self.request).is_free:
            # Without the list of those there are, which are not all for a confined API key to know.
            error = type(error)(f"{error.kind} does not exist")
        return super().handle_exception(error)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer: HttpResponseBase = super().finalize_response(request, response, *args, **kwargs)
        if settings.TIDEMARK_DEPRECATED:
            _mark(request, answer)
        if request.method in ("GET", "HEAD") and answer.status_code == 200 and isinstance(answer, Response):
            answer.add_post_render_callback(partial(conditional, request))
        return answer


def conditional(request: Request, response: Response) -> HttpResponse | None:
    """Give a rendered answer its ETag; return a 304 in its place where the client has it."""
    tag = f'"{etag.digest(response.content)}"'
    response["ETag"] = tag
    return not_modified(tag, response) if etag.is_known(request, tag) else None


def not_modified(tag: str, instead_of: HttpResponse | None = None) -> HttpResponse:
    answer = HttpResponse(status=304, headers={"ETag": tag})
    del answer["Content-Type"]
    for name in ("Vary", "Link", "Deprecation", "Sunset"):
        if instead_of is not None and name in instead_of:
            answer[name] = instead_of[name]
    return answer


def _mark(request: Request, answer: HttpResponseBase) -> None:
    match = request.resolver_match
    marked = settings.TIDEMARK_DEPRECATED.get(match.url_name) if match else None
    for name, value in deprecation.headers(marked).items() if marked else []:
        # A page may have a link of its own, to the next one.
        answer[name] = f"{answer[name]}, {value}" if name == "Link" and name in answer else value
