"""JSON by orjson, in and out. Bytes that PostgreSQL has already made into JSON pass through as `orjson.Fragment`."""

import zlib
from typing import Any

import orjson
from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError, UnsupportedMediaType
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer


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
