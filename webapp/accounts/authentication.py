"""API keys of requests: `Authorization: Bearer tmk_..` or `X-Api-Key: tmk_..`, checked against a cache in each process.

A short-lived token is accepted in place of a key; the request then has the key with the token's restrictions (see
tokens.py).

A valid key costs one query per key and process every TIDEGAUGE_API_KEY_CACHE_SECONDS. Invalid tokens are cached as
well, so that repeating one costs no query. Tokens that differ each time are limited by address (see throttling.py).
"""

import hashlib
import hmac
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from tidegauge.webapp.accounts import revoked_tokens, tokens
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.throttling import TooManyRequestsError, check_address, count_wrong_key

MARK = "tmk"
FORM = re.compile(rf"{MARK}_(?P<prefix>[0-9a-f]{{8}})_(?P<secret>.+)")

# Often enough to tell a key in use from an unused one, without a write per request.
LAST_USED_EVERY = timedelta(minutes=1)

# How long known prefixes are cached. A newer key gets a 429 from an address with too many wrong keys.
PREFIXES_SECONDS = 1.0

# An entry takes about 200 bytes.
MAX_CACHED_INVALID = 10_000


class ApiKeyAuthentication(BaseAuthentication):
    """Sets `request.auth` to the ApiKey; requests without a key are authenticated by their session."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, ApiKey] | None:
        token = _token(request.META)
        if token is None:
            return None
        # A token that may be valid is always looked up, because clients with the same address share its limit.
        if is_new(token) and not _prefixes.has(_prefix(token)):
            check_address(request)
        key = verified(token)
        if key is None:
            # A key that was revoked, and a wrong secret, are a 401 whatever else its address has sent.
            with suppress(TooManyRequestsError) if _prefixes.has(_prefix(token)) else nullcontext():
                count_wrong_key(request)
            raise AuthenticationFailed(_refusal(token))
        return AnonymousUser(), key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="tidegauge"'


def _refusal(token: str) -> str:
    if tokens.is_token(token):
        return "this token is unknown, or its API key has expired or was revoked; request a new one"
    return "this API key is unknown, expired or revoked; ask an administrator for another"


def has_api_key(meta: Mapping[str, Any]) -> bool:
    """Return whether a request has an API key, valid or not; its session does not count then."""
    return _token(meta) is not None


def _token(meta: Mapping[str, Any]) -> str | None:
    scheme, _, token = meta.get("HTTP_AUTHORIZATION", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else meta.get("HTTP_X_API_KEY")


@dataclass(frozen=True, slots=True)
class _CachedKey:
    """fresh_until: when to read it again, on the monotonic clock. valid_until: when its secret expires; None: never."""

    fresh_until: float
    key: ApiKey
    valid_until: datetime | None

    @property
    def is_valid(self) -> bool:
        return self.valid_until is None or timezone.now() < self.valid_until


# Both by digest of the whole token. `_valid` needs no limit, because only secrets of existing keys get into it.
_valid: dict[bytes, _CachedKey] = {}
# The time on the monotonic clock until which the token counts as invalid, the oldest first.
_invalid: dict[bytes, float] = {}
_invalid_lock = threading.Lock()


def verified(token: str) -> ApiKey | None:
    """Return the active API key that `token` belongs to, or None. Raises RefusedTokenError."""
    digest = digest_of(token)
    if tokens.is_token(token):
        return _verified_token(digest, token)
    cached = _valid.get(digest)
    if cached is None or time.monotonic() >= cached.fresh_until:
        cached = _read(digest, token)
    return cached.key if cached is not None and cached.is_valid else None


def is_new(token: str) -> bool:
    """Return whether a token is in neither cache, so that checking it needs a query."""
    digest = digest_of(token)
    if _is_known_invalid(digest):
        return False
    return tokens.needs_query(digest, token) if tokens.is_token(token) else digest not in _valid


def known(meta: Mapping[str, Any]) -> ApiKey | None:
    """Return the API key of a request if this process has verified it before, without asking the database."""
    return _in_memory(meta, tokens.known, fresh_at=-math.inf)


def fresh(meta: Mapping[str, Any]) -> ApiKey | None:
    """Return the API key of a request if it needs no reading again. Raises RefusedTokenError."""
    return _in_memory(meta, tokens.fresh, fresh_at=time.monotonic())


def _in_memory(meta: Mapping[str, Any], of_token: Callable[[bytes], ApiKey | None], fresh_at: float) -> ApiKey | None:
    token = _token(meta)
    if token is None:
        return None
    digest = digest_of(token)
    if tokens.is_token(token):
        return of_token(digest)
    cached = _valid.get(digest)
    return cached.key if cached is not None and fresh_at < cached.fresh_until and cached.is_valid else None


def cannot_be_valid(meta: Mapping[str, Any]) -> bool:
    """Return whether a request has an API key or token of which this process knows that there is no such prefix."""
    token = _token(meta)
    return token is not None and _prefixes.lacks(_prefix(token))


def verify(meta: Mapping[str, Any]) -> None:
    """Look up the API key of a request, if it has one that may exist, so that `known` returns it."""
    token = _token(meta)
    if token is not None and (not is_new(token) or _prefixes.has(_prefix(token))):
        with suppress(AuthenticationFailed):  # the view says why
            verified(token)


class _Prefixes:
    """The prefixes of all API keys, read at most once per PREFIXES_SECONDS, so that wrong tokens cost no query each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self._until, self._known = 0.0, frozenset[str]()

    def has(self, prefix: str) -> bool:
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = frozenset(ApiKey.objects.values_list("prefix", flat=True))
                self._until = time.monotonic() + PREFIXES_SECONDS
            return prefix in self._known

    def lacks(self, prefix: str) -> bool:
        """Return whether there is no such prefix, without a query; False if that is not known at the moment."""
        return time.monotonic() < self._until and prefix not in self._known


_prefixes = _Prefixes()


def _prefix(token: str) -> str:
    """Return the prefix of the API key that a token claims to belong to; empty if it is malformed."""
    if tokens.is_token(token):
        return tokens.key_id(token)
    form = FORM.fullmatch(token)
    return form["prefix"] if form else ""


def clear_cache() -> None:
    """Forget all tokens, so that each is looked up in the database again."""
    _valid.clear()
    _prefixes.clear()
    tokens.clear_cache()
    with _invalid_lock:
        _invalid.clear()


def digest_of(text: str) -> bytes:
    return hashlib.sha512(text.encode()).digest()


def _read(digest: bytes, token: str) -> _CachedKey | None:
    if _is_known_invalid(digest):
        return None
    found = _find(token)
    if found is None:
        _valid.pop(digest, None)
        _cache_invalid(digest)
        return None
    key, valid_until = found
    fresh_until = time.monotonic() + settings.TIDEGAUGE_API_KEY_CACHE_SECONDS
    cached = _valid[digest] = _CachedKey(fresh_until, key, valid_until)
    if cached.is_valid:
        _record_use(key)
    return cached


def _verified_token(digest: bytes, token: str) -> ApiKey | None:
    if _is_known_invalid(digest):
        return None
    key = tokens.verified(digest, token, _find_by_prefix)
    if key is None:
        _cache_invalid(digest)
    return key


def _find_by_prefix(prefix: str) -> ApiKey | None:
    key = revoked_tokens.find_key(prefix)
    if key is not None:
        _record_use(key)
    return key


def _find(token: str) -> tuple[ApiKey, datetime | None] | None:
    """Return the key, and the time until which the secret in this token is valid."""
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


def _is_known_invalid(digest: bytes) -> bool:
    return time.monotonic() < _invalid.get(digest, 0.0)


def _cache_invalid(digest: bytes) -> None:
    with _invalid_lock:
        _invalid.pop(digest, None)
        if len(_invalid) >= MAX_CACHED_INVALID:
            del _invalid[next(iter(_invalid))]
        _invalid[digest] = time.monotonic() + settings.TIDEGAUGE_API_KEY_CACHE_SECONDS


def _record_use(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is not None and key.last_used_at > now - LAST_USED_EVERY:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_EVERY)
    ApiKey.objects.filter(stale, pk=key.pk).update(last_used_at=now)
