"""Style sheets within the page at the first visit of a browser, so that its first paint waits for one round trip.

A script of the page then stores the files, and says so in a cookie, so that later pages only link to them. The policy
has the digest of each sheet, so that no other style within a page applies.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import blake2s, sha256
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import HttpRequest

COOKIE = "tidegauge_styles"

COMMENTS_AND_INDENTS = re.compile(r"/\*.*?\*/|\n\s*", re.DOTALL)


@cache
def sheet(name: str) -> str:
    """Return a style sheet without comments. It must not name other files, whose addresses depend on its own."""
    return COMMENTS_AND_INDENTS.sub("", Path(finders.find(name) or name).read_text("utf-8"))


@cache
def stored_version() -> str:
    """Return what the cookie says in a browser that has the files of this release."""
    return blake2s("".join(map(sheet, settings.TIDEGAUGE_FIRST_STYLES)).encode(), digest_size=6).hexdigest()


def is_first_visit(request: HttpRequest | None) -> bool:
    """Return whether a browser does not have the files; False for pages that are rendered without a request."""
    return request is not None and request.COOKIES.get(COOKIE) != stored_version()


@cache
def sources() -> str:
    """Return the digests of the sheets, as the policy takes them."""
    return " ".join(_digest(sheet(name)) for name in settings.TIDEGAUGE_FIRST_STYLES)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
