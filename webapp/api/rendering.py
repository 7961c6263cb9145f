"""JSON by orjson, in and out. Bytes that PostgreSQL has already made into JSON pass through as `orjson.Fragment`."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class RequestTooLargeError(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE


class OrjsonRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None  # JSON is UTF-8; a charset parameter means nothing

    def render(self, data: Any, accepted_media_type=None, renderer_context=None) -> bytes:
        # Without the option, an error report keyed by list index would turn a 400 into a 500.
        return b"" if data is None else orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)


class OrjsonParser(BaseParser):
    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None) -> Any:
        limit = settings.TIDEMARK_REQUEST_MAX_BYTES
        body = stream.read(limit + 1)
        packed = parser_context["request"].META.get("HTTP_CONTENT_ENCODING", "") if parser_context else ""
        if packed and len(body) <= limit:
            body = _unpacked(body, packed, limit)
        if len(body) > limit:
            raise RequestTooLargeError(f"the body is over {limit} bytes; ask for fewer keys at a time")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ParseError(f"the body is no JSON: {error}") from error


def _unpacked(body: bytes, how: str, limit: int) -> bytes:
    """Return what is in a packed body, no more than one byte over the limit of it."""
    if how.lower() != "gzip":
        raise UnsupportedMediaType(how, f"Content-Encoding {how[:40]!r} is not known here; there is gzip")
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = unpacking.decompress(body, limit + 1)
    except zlib.error as error:
        raise ParseError(f"the body is no gzip: {error}") from error
    if len(content) <= limit and not unpacking.eof:
        raise ParseError("the body is no gzip: it is cut short")
    return content


# Which format an answer has: `?format=csv` where a call has several, else what `Accept` says.


class Negotiation(DefaultContentNegotiation):
    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderers = list(renderers)
        asked = request.query_params.get("format") if len(renderers) > 1 else None
        if asked is not None:
            return _named(asked, renderers)
        # Nearly every request; reading its header to no end would cost a lookup a twentieth of its time.
        first = renderers[0].media_type or ""
        if request.META.get("HTTP_ACCEPT", "*/*") in ("*/*", first):
            return renderers[0], first
        return super().select_renderer(request, renderers, None)


def _named(asked: str, renderers: Sequence[BaseRenderer]) -> tuple[BaseRenderer, str]:
    for renderer in renderers:
        if renderer.format == asked:
            return renderer, renderer.media_type or ""
    known = ", ".join(str(renderer.format) for renderer in renderers)
    raise ParseError(f"format must be one of {known}, got {asked[:40]!r}")


# Answers of the API packed by gzip, for clients that take it.
#
# JSON of the API alone: its documents repeat no secret beside what a client sends, so that their packed size tells
# nothing (BREACH), which cannot be said of pages with a CSRF token. Streams go as they are: packing would collect
# them.


JSON = ("application/json", "application/problem+json")

# A packet's worth: less is not sent any faster.
LEAST_BYTES = 1_024


class PackedAnswers(GZipMiddleware):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not isinstance(response, HttpResponse) or not request.path_info.startswith("/api/v1/"):
            return response
        if len(response.content) < LEAST_BYTES or response.get("Content-Type") not in JSON:
            return response
        return super().process_response(request, response)
