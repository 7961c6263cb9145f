"""How bodies are read and answers are written: JSON by orjson, formats, ETags, gzip.

JSON that PostgreSQL has made passes through as `orjson.Fragment`.
"""

import hashlib
import zlib
from collections.abc import Iterable
from typing import Any

import orjson
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.http import parse_etags
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

COMPRESSED_TYPES = ("application/json", "application/problem+json")
MOST_NESTED = 254  # levels that orjson writes
MIN_COMPRESSED_BYTES = 1_024  # about one packet: fewer bytes are not sent any faster


class RequestTooLargeError(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE


class UnreadableJsonError(ParseError):
    """The body is not JSON, or not compressed as it says."""


class OrjsonRenderer(BaseRenderer):
    media_type = "application/json"
    format = "json"
    charset = None  # JSON is UTF-8; a charset parameter means nothing

    def render(self, data: Any, accepted_media_type=None, renderer_context=None) -> bytes:
        # With the option, numbers as keys become text, as in the standard library.
        return b"" if data is None else orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)


class OrjsonParser(BaseParser):
    media_type = "application/json"

    def parse(self, stream, media_type=None, parser_context=None) -> Any:
        body = read_body(stream, parser_context)
        try:
            return parse_json(body)
        except orjson.JSONDecodeError as error:
            raise UnreadableJsonError(f"the body is not JSON: {error}") from error


def read_body(stream: Any, parser_context: Any) -> bytes:
    """Return the body of a request, decompressed. Raises RequestTooLargeError."""
    limit = settings.TIDEGAUGE_REQUEST_MAX_BYTES
    body: bytes = stream.read(limit + 1)
    encoding = parser_context["request"].META.get("HTTP_CONTENT_ENCODING", "") if parser_context else ""
    if encoding and len(body) <= limit:
        body = _decompressed(body, encoding, limit)
    if len(body) > limit:
        raise RequestTooLargeError(f"the body is over {limit} bytes; ask for fewer keys at a time")
    return body


def parse_json(text: bytes | str) -> Any:
    """Raises JSONDecodeError, a ValueError, also for what is nested more deeply than it could be written again."""
    value = orjson.loads(text)
    opened = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    if sum(map(text.count, opened)) <= MOST_NESTED:  # type: ignore[arg-type]
        return value
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise orjson.JSONDecodeError("nested over 254 levels deep", "", 0) from None
    return value


def _decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return the content of a compressed body, at most one byte over the limit of it."""
    if encoding.lower() != "gzip":
        raise UnsupportedMediaType(encoding, f"Content-Encoding {encoding[:40]!r} is not supported; use gzip")
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = decompressor.decompress(body, limit + 1)
    except zlib.error as error:
        raise UnreadableJsonError(f"the body is not gzip: {error}") from error
    if len(content) <= limit and not decompressor.eof:
        raise UnreadableJsonError("the body is not gzip: it ends too early")
    return content


class Negotiation(DefaultContentNegotiation):
    """Chooses the format by `Accept`. A call has one; `/api/schema` has several."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderers = list(renderers)
        # Nearly every request. DRF's parsing of the header takes 5 % of the time of a lookup.
        first = renderers[0].media_type or ""
        if len(renderers) == 1 and request.META.get("HTTP_ACCEPT", "*/*") in ("*/*", first):
            return renderers[0], first
        return super().select_renderer(request, renderers, None)

    def filter_renderers(self, renderers: Iterable[BaseRenderer], format: str) -> list[BaseRenderer]:
        # `?format=` is a parameter of /api/schema alone.
        renderers = list(renderers)
        return super().filter_renderers(renderers, format) if len(renderers) > 1 else renderers


def digest(*parts: bytes) -> str:
    seal = hashlib.blake2b(digest_size=12)
    for part in parts:
        seal.update(b"%d:" % len(part))
        seal.update(part)
    return seal.hexdigest()


def known_etags(request: Request | HttpRequest) -> list[str]:
    """Return the ETags of `If-None-Match`, weak ones as strong ones: gzip makes the tag of an answer weak."""
    asked = request.META.get("HTTP_IF_NONE_MATCH")
    return [tag.removeprefix("W/") for tag in parse_etags(asked)] if asked else []


def conditional(request: Request, response: Response) -> HttpResponse | None:
    """Give a rendered answer its ETag; return a 304 in its place if the client has it."""
    etag = f'"{digest(response.content)}"'
    response["ETag"] = etag
    return not_modified(etag, response) if is_known(etag, request) else None


def is_known(etag: str, request: Request | HttpRequest) -> bool:
    """Return whether the client has an answer. `*` means any, where there is something to GET."""
    known = known_etags(request)
    return etag in known or (known == ["*"] and request.method in ("GET", "HEAD"))


def not_modified(etag: str, instead_of: HttpResponse | None = None) -> HttpResponse:
    answer = HttpResponse(status=304, headers={"ETag": etag})
    del answer["Content-Type"]
    for name in ("Vary", "Link"):
        if instead_of is not None and name in instead_of:
            answer[name] = instead_of[name]
    return answer


class CompressedAnswers(GZipMiddleware):
    """Compresses JSON of the API, and pages, for clients that accept gzip.

    Documents of the API repeat no secret next to what a client sends, so their compressed size reveals nothing
    (BREACH). Pages do, so see `may_compress_page`. Streams are not compressed, since that would collect them in memory.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not isinstance(response, HttpResponse) or len(response.content) < MIN_COMPRESSED_BYTES:
            return response
        if request.path_info.startswith("/api/v1/"):
            is_compressed = response.headers.get("Content-Type") in COMPRESSED_TYPES
        else:
            is_compressed = may_compress_page(request, response)
        return super().process_response(request, response) if is_compressed else response


def may_compress_page(request: HttpRequest, response: HttpResponse) -> bool:
    """Return whether the compressed size of a page tells nobody what is in it.

    Only of pages that this site or the person at the browser asked for: an attacker has to make a browser ask for many
    guesses from a page elsewhere. Not of answers to forms, which may show a new secret. Each answer has a CSRF token
    with another mask, and GZipMiddleware adds up to 100 random bytes (Heal the BREACH).
    """
    is_page = response.headers.get("Content-Type", "").startswith("text/html")
    # Browsers that do not send the header are older than 2023, or reach the site without TLS, which hides nothing.
    is_own = request.META.get("HTTP_SEC_FETCH_SITE", "none") in ("none", "same-origin")
    return is_page and is_own and request.method == "GET"
