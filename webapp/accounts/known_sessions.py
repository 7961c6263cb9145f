"""The sessions that this process has seen signed in, so that their requests are charged to a person and not an address.

Being known grants nothing but a place in the queue: each request still checks its session. An entry that outlives its
session lets its browser wait among the signed-in for ten minutes more.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse, parse_cookie

from tidegauge.webapp.accounts.authentication import digest_of

KNOWN_SECONDS = 600.0
MOST_KNOWN = 10_000

# The primary key of the user, and until when it is known on the monotonic clock, by digest of the cookie; oldest first.
_known: dict[bytes, tuple[str, float]] = {}
_lock = threading.Lock()


def user_of(meta: Mapping[str, Any]) -> str | None:
    """Return the primary key of the user whose session a request has, if it is known. It asks no database."""
    cookies = meta.get("HTTP_COOKIE")
    if not cookies or not _known:
        return None
    user, until = _known.get(digest_of(parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME, "")), ("", 0.0))
    return user if time.monotonic() < until else None


class KnownSessions:
    """Middleware. Remembers sessions that a request has read and found to be somebody's."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        session, cookie = request.session, request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        # Django keeps what it has read here. A session that was not read, or could not be, is not read for this.
        is_read = hasattr(session, "_session_cache")
        if cookie and is_read and SESSION_KEY in session and cookie == session.session_key:
            _remember(digest_of(cookie), str(session[SESSION_KEY]))
        return response


def clear_cache() -> None:
    _known.clear()


def _remember(digest: bytes, user: str) -> None:
    # With a lock, because two threads may find the table full at once.
    with _lock:
        _known.pop(digest, None)
        if len(_known) >= MOST_KNOWN:
            del _known[next(iter(_known))]
        _known[digest] = user, time.monotonic() + KNOWN_SECONDS
