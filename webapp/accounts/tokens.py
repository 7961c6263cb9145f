"""Short-lived tokens: a JWT that a program gets with its API key for a client that must not have it, such as a page.

A token may only read, within restrictions that are never wider than its key's. It is signed with the digest of the
key's secret and with SECRET_KEY, so it is valid no longer than that secret: until the key is revoked or expires, or the
grace period after a rotation ends. A token can also be revoked itself. See docs/adr/access.md.

The signature of a token is checked once per process. Its key is read with all of its revoked tokens, which costs one
query per key and process every TIDEGAUGE_API_KEY_CACHE_SECONDS, however many tokens the key has.
"""

import copy
import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import jwt
from django.conf import settings
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed

from tidegauge.webapp.accounts.key_options import Scope
from tidegauge.webapp.accounts.models import ApiKey, Token

# The only accepted algorithm; the header of a token does not choose it, because clients write that header.
ALGORITHM = "HS256"
AUDIENCE = "tidegauge:read"
# The audience of tokens with `queries`, so that servers of older versions, which ignore that claim, refuse them.
OF_QUERIES = "tidegauge:queries"
REQUIRED = ["iss", "aud", "iat", "nbf", "exp", "jti", "states", "key_prefix"]

# How far the clocks of two servers may differ.
CLOCK_SKEW = timedelta(seconds=5)

# A JWT has three parts with dots between them; an API key has no dot.
FORM = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
KEY_ID = re.compile(r"[0-9a-f]{8}")

# An entry takes about 1 kB, and at most 8 kB (issuing.py).
MAX_CACHED = 10_000

Find = Callable[[str], ApiKey | None]


class RefusedTokenError(AuthenticationFailed):
    """A token that an API key has made but that is not valid: expired, revoked, or for another installation."""


def is_token(text: str) -> bool:
    """Return whether a text has the form of a token and not of an API key."""
    return text.count(".") == 2


def needs_query(digest: bytes, text: str) -> bool:
    """Return whether checking a token needs a query, because this process has used no token of its API key yet."""
    return digest not in _checked and key_id(text) not in _keys


def verified(digest: bytes, text: str, find: Find) -> ApiKey | None:
    """Return a token's API key, restricted to what the token allows; None if no valid API key has made it.

    digest: the digest of the text. find: reads a valid API key by its prefix. Raises RefusedTokenError.
    """
    checked = _checked.get(digest)
    key = _fresh_key(key_id(text) if checked is None else checked.prefix, find)
    if key is None:
        return None
    if checked is None:
        checked = _check(text, key)
        if checked is None:
            return None
        _remember(digest, checked)
    return checked.restricted(key)


def known(digest: bytes) -> ApiKey | None:
    """Return the API key of a token that was checked before and has not expired, as read last. Asks no database."""
    checked = _checked.get(digest)
    cached = None if checked is None else _keys.get(checked.prefix)
    if checked is None or cached is None or checked.token.expires_at + CLOCK_SKEW <= timezone.now():
        return None
    return cached.key


def fresh(digest: bytes) -> ApiKey | None:
    """Return what `verified` does if that asks no database, else None. Raises RefusedTokenError."""
    checked = _checked.get(digest)
    cached = None if checked is None else _keys.get(checked.prefix)
    if checked is None or cached is None or time.monotonic() >= cached.fresh_until:
        return None
    return checked.restricted(cached.key)


def signing_key(secret_sha512: bytes | memoryview) -> bytes:
    """Return the key of the HMAC. It is made of the digest and SECRET_KEY, because backups contain only the digest."""
    return hmac.digest(settings.SECRET_KEY.encode(), b"tidegauge token\0" + bytes(secret_sha512), "sha512")


def begins_with(longer: Sequence[Any], shorter: Sequence[Any]) -> bool:
    # As JSON, because 1 == True and 1 == 1.0 in Python, but they are different keys.
    return [json.dumps(part) for part in longer[: len(shorter)]] == [json.dumps(part) for part in shorter]


def forget_key(prefix: str) -> None:
    """Read an API key and its revoked tokens again at the next use of one of its tokens."""
    _keys.pop(prefix, None)


def clear_cache() -> None:
    _keys.clear()
    with _checked_lock:
        _checked.clear()


@dataclass(slots=True)
class _CheckedToken:
    """A token with a valid signature. signed_by: the digest of the secret that it was signed with.

    last: the API key as read last, and its copy with the token's restrictions.
    """

    prefix: str
    token: Token
    signed_by: bytes
    last: tuple[ApiKey, ApiKey | None] | None = None

    def restricted(self, key: ApiKey) -> ApiKey | None:
        """Return the key with the token's restrictions; None if the key or its secret is no longer valid."""
        now = timezone.now()
        if self.token.expires_at + CLOCK_SKEW <= now:
            raise RefusedTokenError("this token has expired; request a new one with its API key")
        if key.is_expired(now) or self.signed_by not in _valid_secrets(key, now):
            return None
        if self.token.id in key.revoked_tokens:
            raise RefusedTokenError("this token was revoked; request a new one with its API key")
        last = self.last
        if last is None or last[0] is not key:
            last = self.last = (key, _restricted(key, self.token))
        return last[1]


@dataclass(frozen=True, slots=True)
class _CachedKey:
    fresh_until: float
    key: ApiKey


# `_keys` is by prefix, and needs no limit, because only existing keys get into it. `_checked` is by digest of the whole
# token, the oldest first.
_keys: dict[str, _CachedKey] = {}
_checked: dict[bytes, _CheckedToken] = {}
_checked_lock = threading.Lock()


def key_id(text: str) -> str:
    """Return the prefix of the API key that a token claims to belong to; empty if it is malformed."""
    if FORM.fullmatch(text) is None:
        return ""
    try:
        key_id = jwt.get_unverified_header(text).get("kid", "")
    except jwt.InvalidTokenError:
        return ""
    return key_id if KEY_ID.fullmatch(key_id) else ""


def _fresh_key(prefix: str, find: Find) -> ApiKey | None:
    cached = _keys.get(prefix)
    if cached is not None and time.monotonic() < cached.fresh_until:
        return cached.key
    key = find(prefix) if prefix else None
    if key is None:
        _keys.pop(prefix, None)
        return None
    _keys[prefix] = _CachedKey(time.monotonic() + settings.TIDEGAUGE_API_KEY_CACHE_SECONDS, key)
    return key


def _check(text: str, key: ApiKey) -> _CheckedToken | None:
    for secret_sha512 in _valid_secrets(key, timezone.now()):
        try:
            claims = _claims(text, secret_sha512)
        except jwt.InvalidSignatureError:
            continue
        except (jwt.InvalidAlgorithmError, jwt.DecodeError):
            return None
        except jwt.ExpiredSignatureError:
            raise RefusedTokenError("this token has expired; request a new one with its API key") from None
        except jwt.InvalidTokenError as error:
            raise RefusedTokenError(f"this token is not valid here: {error}") from None
        return _CheckedToken(key.prefix, _token(claims), secret_sha512)
    return None


def _claims(text: str, secret_sha512: bytes) -> dict[str, Any]:
    return jwt.decode(
        text,
        signing_key(secret_sha512),
        algorithms=[ALGORITHM],
        audience=[AUDIENCE, OF_QUERIES],
        issuer=settings.TIDEGAUGE_TOKEN_ISSUER,
        leeway=CLOCK_SKEW,
        options={"require": REQUIRED},
    )


def _valid_secrets(key: ApiKey, now: datetime) -> Iterator[bytes]:
    yield bytes(key.secret_sha512)
    if key.previous_sha512 is not None and key.previous_until is not None and now < key.previous_until:
        yield bytes(key.previous_sha512)


def _token(claims: dict[str, Any]) -> Token:
    return Token(
        id=claims["jti"],
        sub=claims.get("sub", ""),
        states=claims["states"],
        key_prefix=claims["key_prefix"],
        queries=claims.get("queries", []),
        rate=claims.get("rate"),
        burst=claims.get("burst"),
        expires_at=datetime.fromtimestamp(claims["exp"], timezone.get_default_timezone()),
    )


def _restricted(key: ApiKey, token: Token) -> ApiKey | None:
    """Return a copy of the key that allows what both key and token allow; None if that is nothing. Never save the copy.

    Both count, because the key may have been restricted further since it made the token.
    """
    restricted = copy.copy(key)
    restricted.token = token
    restricted.scopes = [Scope.READ] if key.allows(Scope.READ) else []
    states, queries = _in_both(token.states, key.states), _in_both(token.queries, key.queries)
    prefix = max(token.key_prefix, key.key_prefix, key=len)
    if states is None or queries is None or not all(begins_with(prefix, own.key_prefix) for own in (token, key)):
        return None
    restricted.states, restricted.key_prefix, restricted.queries = states, prefix, queries
    return restricted


def _in_both(names: list[str], others: list[str]) -> list[str] | None:
    """Return the names in both lists; an empty list stands for all names. None if they have no name in common."""
    if not names or not others:
        return names or others
    return [name for name in names if name in others] or None


def _remember(digest: bytes, checked: _CheckedToken) -> None:
    with _checked_lock:
        if len(_checked) >= MAX_CACHED:
            del _checked[next(iter(_checked))]
        _checked[digest] = checked
