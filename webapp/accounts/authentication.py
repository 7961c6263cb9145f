"""Telling a right key from a wrong one, mostly from memory: a key costs one query every few seconds per process.

A wrong one is remembered as well, so that repeating it costs none. Tokens that are never the same are kept from the
database by the limit of wrong keys per address (see authentication.py).
"""

import hashlib
import hmac
import re
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from webapp.accounts.models import ApiKey
from webapp.accounts.throttling import check_address, count_wrong_key

MARK = "tmk"
FORM = re.compile(rf"{MARK}_(?P<prefix>[0-9a-f]{{8}})_(?P<secret>.+)")

# Often enough to tell a key in use from a forgotten one.
LAST_USED_EVERY = timedelta(minutes=1)

# About 200 bytes each.
WRONG_KEYS_HELD = 10_000


@dataclass(frozen=True, slots=True)
class _Held:
    """until: when to ask the database again, on the monotonic clock. good_until: when the secret dies; None: never."""

    until: float
    key: ApiKey
    good_until: datetime | None

    @property
    def is_good(self) -> bool:
        return self.good_until is None or timezone.now() < self.good_until


# By digest of the whole token. Right ones only, so it stays small.
_seen: dict[bytes, _Held] = {}
# Wrong ones, with the time of asking again; the oldest first.
_wrong: dict[bytes, float] = {}
_wrong_lock = threading.Lock()


def verified(token: str) -> ApiKey | None:
    """Return the key that `token` is a secret form of, if it is in force; else None."""
    digest = digest_of(token)
    held = _seen.get(digest)
    if held is None or time.monotonic() >= held.until:
        held = _asked_again(digest, token)
    return held.key if held is not None and held.is_good else None


def is_new(token: str) -> bool:
    """Tell whether nothing is remembered of a token, so that the database would have to be asked."""
    digest = digest_of(token)
    return digest not in _seen and not _is_known_wrong(digest)


def forget() -> None:
    """Ask the database about every key again."""
    _seen.clear()
    with _wrong_lock:
        _wrong.clear()


def digest_of(text: str) -> bytes:
    return hashlib.sha512(text.encode()).digest()


def _asked_again(digest: bytes, token: str) -> _Held | None:
    if _is_known_wrong(digest):
        return None
    found = _find(token)
    if found is None:
        _seen.pop(digest, None)
        _remember_wrong(digest)
        return None
    key, good_until = found
    held = _seen[digest] = _Held(time.monotonic() + settings.TIDEMARK_API_KEY_CACHE_SECONDS, key, good_until)
    if held.is_good:
        _note_use(key)
    return held


def _find(token: str) -> tuple[ApiKey, datetime | None] | None:
    """Return the key with the time when this secret of it dies."""
    form = FORM.fullmatch(token)
    if form is None:
        return None
    key, digest = ApiKey.objects.filter(prefix=form["prefix"], revoked_at=None).first(), digest_of(form["secret"])
    if key is None:
        return None
    if hmac.compare_digest(digest, key.secret_sha512):
        return key, key.expires_at
    if key.previous_until is not None and hmac.compare_digest(digest, key.previous_sha512 or b""):
        return key, min(key.previous_until, key.expires_at or key.previous_until)
    return None


def _is_known_wrong(digest: bytes) -> bool:
    return time.monotonic() < _wrong.get(digest, 0.0)


def _remember_wrong(digest: bytes) -> None:
    with _wrong_lock:
        _wrong.pop(digest, None)
        if len(_wrong) >= WRONG_KEYS_HELD:
            del _wrong[next(iter(_wrong))]
        _wrong[digest] = time.monotonic() + settings.TIDEMARK_API_KEY_CACHE_SECONDS


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is not None and key.last_used_at > now - LAST_USED_EVERY:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_EVERY)
    ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)


# How a request says which API key it holds: `Authorization: Bearer tmk_..` or `X-Api-Key: tmk_..`.


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey; requests without one go on to the session."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, ApiKey] | None:
        token = _token(request.META)
        if token is None:
            return None
        # Keys that nobody has seen yet cost a query each; those in use are not held up by a neighbour's wrong ones.
        if is_new(token):
            check_address(request)
        key = verified(token)
        if key is None:
            count_wrong_key(request)
            raise AuthenticationFailed("this API key is unknown, expired or revoked; ask an administrator for another")
        return AnonymousUser(), key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="tidemark"'


def _token(headers) -> str | None:
    scheme, _, token = headers.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("HTTP_X_API_KEY")
