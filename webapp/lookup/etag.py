"""ETags: what an answer is told apart by, and which of them a client knows already."""

import hashlib

from django.http import HttpRequest
from django.utils.http import parse_etags
from rest_framework.request import Request


def digest(*parts: bytes) -> str:
    seal = hashlib.blake2b(digest_size=12)
    for part in parts:
        seal.update(b"%d:" % len(part))
        seal.update(part)
    return seal.hexdigest()


def known(request: Request | HttpRequest) -> list[str]:
    """Return the ETags of `If-None-Match`, weak ones as strong ones, since packing an answer makes its tag weak."""
    asked = request.META.get("HTTP_IF_NONE_MATCH")
    return [tag.removeprefix("W/") for tag in parse_etags(asked)] if asked else []


def is_known(request: Request | HttpRequest, etag: str) -> bool:
    tags = known(request)
    return etag in tags or tags == ["*"]
