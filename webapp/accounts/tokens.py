"""Short-lived tokens: a JWT that a program makes with its API key for one that must not have the key, such as a page.

A token reads, within restrictions that are never wider than its key's. It is signed with the digest of the key's secret
and with SECRET_KEY, so it ends with that secret: when the key is revoked or expires, or when the grace period after a
rotation ends. See docs/adr/0052.

The signature of a token is checked once per process; its key costs one query per key and process every
TIDEMARK_API_KEY_CACHE_SECONDS, however many tokens it has.
"""

import copy
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import jwt
from django.conf import settings
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed, ParseError

from webapp.accounts.models import ApiKey, Scope, Token
from webapp.accounts.permissions import KeyScope, OutsideError
from webapp.accounts.queries import rate_of

# The only one that is accepted, whatever the header of a token says.
ALGORITHM = "HS256"
AUDIENCE = "tidemark:read"
REQUIRED = ["iss", "aud", "iat", "nbf", "exp", "jti", "states", "key_prefix"]

LEAST_SECONDS, DEFAULT_SECONDS, MOST_SECONDS = 10, 600, 24 * 3_600

# Of a token. Proxies take headers of 8 kB, and each process keeps the tokens that it has checked.
MOST_BYTES = 8_000

# How far the clocks of two servers may differ.
CLOCK_SKEW = timedelta(seconds=5)

# Of PyJWT's three parts; an API key has no dot.
FORM = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
KEY_ID = re.compile(r"[0-9a-f]{8}")

# About one kilobyte each, at most MOST_BYTES.
MAX_CACHED = 10_000

Find = Callable[[str], ApiKey | None]


class RefusedTokenError(AuthenticationFailed):
    """A token that was made by an API key, and is not valid: it has expired, or is for another installation."""


@dataclass(frozen=True)
class IssuedToken:
    text: str
    token: Token


def issue(
    key: ApiKey,
    *,
    states: Sequence[str] = (),
    key_prefix: Sequence[Any] = (),
    rate: int | None = None,
    burst: int | None = None,
    sub: str = "",
    lifetime_seconds: int = DEFAULT_SECONDS,
) -> IssuedToken:
    """Make a token. Empty states and key_prefix: those of the key; rate None: no limit but the key's.

    Raises OutsideError for what is wider than the key, ParseError for a burst without a rate and for a token that
    would be too long.
    """
    scope, now = KeyScope.of(key), timezone.now().replace(microsecond=0)
    for name in states:
        scope.check_state(name)
    if key_prefix and not _begins_with(key_prefix, key.key_prefix):
        raise OutsideError(f"key_prefix: this API key is restricted to {json.dumps(key.key_prefix)}")
    _check_rate(key, rate, burst)
    expires_at = now + timedelta(seconds=lifetime_seconds)
    token = Token(
        id=secrets.token_hex(8),
        sub=sub,
        states=sorted(set(states)) or key.states,
        key_prefix=list(key_prefix) or key.key_prefix,
        rate=rate,
        burst=burst,
        # The key's own expiry is checked at each use as well.
        expires_at=expires_at if key.expires_at is None else min(expires_at, key.expires_at),
    )
    text = _encoded(key, token, now)
    if len(text) > MOST_BYTES:
        raise ParseError(
            f"the token would have {len(text)} bytes, over the limit of {MOST_BYTES}; name fewer states, or a shorter "
            "key_prefix"
        )
    return IssuedToken(text, token)


def is_token(text: str) -> bool:
    """Return whether a text has the form of a token; API keys have another."""
    return text.count(".") == 2


def needs_query(digest: bytes, text: str) -> bool:
    """Return whether checking a token needs a query: none of its API key's tokens has been used in this process."""
    return digest not in _checked and key_id(text) not in _keys


def verified(digest: bytes, text: str, find: Find) -> ApiKey | None:
    """Return a token's API key, restricted to what the token allows; None if no valid API key has made it.

    digest: of the text. find: reads a valid API key by its prefix. Raises RefusedTokenError.
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


def clear_cache() -> None:
    _keys.clear()
    with _checked_lock:
        _checked.clear()


# Issuing


def _begins_with(longer: Sequence[Any], shorter: Sequence[Any]) -> bool:
    # As JSON, because 1 == True and 1 == 1.0 in Python, and they are different keys.
    return [json.dumps(part) for part in longer[: len(shorter)]] == [json.dumps(part) for part in shorter]


def _check_rate(key: ApiKey, rate: int | None, burst: int | None) -> None:
    own_rate = rate_of(key)
    own_burst = key.burst or own_rate
    if burst is not None and rate is None:
        raise ParseError("burst needs a rate: set both, or neither")
    if own_rate and (rate or 0) > own_rate:
        raise OutsideError(f"rate: this API key may send {own_rate} requests a minute, not {rate}")
    if own_burst and (burst or 0) > own_burst:
        raise OutsideError(f"burst: this API key may send {own_burst} requests at once, not {burst}")


def _encoded(key: ApiKey, token: Token, now: datetime) -> str:
    claims = {
        "iss": settings.TIDEMARK_TOKEN_ISSUER, "aud": AUDIENCE, "iat": now, "nbf": now, "exp": token.expires_at,
        "jti": token.id, "states": token.states, "key_prefix": token.key_prefix,
    }  # fmt: skip
    optional = {"sub": token.sub or None, "rate": token.rate, "burst": token.burst}
    claims |= {name: value for name, value in optional.items() if value is not None}
    return jwt.encode(claims, _signing_key(key.secret_sha512), ALGORITHM, headers={"kid": key.prefix})


def _signing_key(secret_sha512: bytes | memoryview) -> bytes:
    """Return the key of the HMAC. It needs both SECRET_KEY, which no backup of the database has, and the digest."""
    return hmac.digest(settings.SECRET_KEY.encode(), b"tidemark token\0" + bytes(secret_sha512), "sha512")


# Checking


@dataclass(slots=True)
class _CheckedToken:
    """A token with a valid signature. signed_by: the digest of the secret whose signature it is.

    last: the API key as it was read last, and the same with the token's restrictions.
    """

    prefix: str
    token: Token
    signed_by: bytes
    last: tuple[ApiKey, ApiKey | None] | None = None

    def restricted(self, key: ApiKey) -> ApiKey | None:
        """Return the key with the token's restrictions; None once the token is not the key's any more."""
        now = timezone.now()
        if self.token.expires_at + CLOCK_SKEW <= now:
            raise RefusedTokenError("this token has expired; have another one made by its API key")
        if key.is_expired(now) or self.signed_by not in _valid_secrets(key, now):
            return None
        last = self.last
        if last is None or last[0] is not key:
            last = self.last = (key, _restricted(key, self.token))
        return last[1]


@dataclass(frozen=True, slots=True)
class _CachedKey:
    fresh_until: float
    key: ApiKey


# By prefix, as many as there are keys; and by digest of the whole token, the oldest first.
_keys: dict[str, _CachedKey] = {}
_checked: dict[bytes, _CheckedToken] = {}
_checked_lock = threading.Lock()


def key_id(text: str) -> str:
    """Return the prefix of the API key that a token claims to be of; empty if it is malformed."""
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
    _keys[prefix] = _CachedKey(time.monotonic() + settings.TIDEMARK_API_KEY_CACHE_SECONDS, key)
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
            raise RefusedTokenError("this token has expired; have another one made by its API key") from None
        except jwt.InvalidTokenError as error:
            raise RefusedTokenError(f"this token is not valid here: {error}") from None
        return _CheckedToken(key.prefix, _token(claims), secret_sha512)
    return None


def _claims(text: str, secret_sha512: bytes) -> dict[str, Any]:
    return jwt.decode(
        text,
        _signing_key(secret_sha512),
        algorithms=[ALGORITHM],
        audience=AUDIENCE,
        issuer=settings.TIDEMARK_TOKEN_ISSUER,
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
        rate=claims.get("rate"),
        burst=claims.get("burst"),
        expires_at=datetime.fromtimestamp(claims["exp"], timezone.get_default_timezone()),
    )


def _restricted(key: ApiKey, token: Token) -> ApiKey | None:
    """Return a copy of the key, not to be saved, with what both it and the token allow; None if that is nothing.

    The key may have been restricted further since it made the token.
    """
    restricted = copy.copy(key)
    restricted.token = token
    restricted.scopes = [Scope.READ] if key.allows(Scope.READ) else []
    restricted.states = [name for name in token.states or key.states if not key.states or name in key.states]
    restricted.key_prefix = max(token.key_prefix, key.key_prefix, key=len)
    # An empty list would stand for all states.
    has_states = bool(restricted.states) or not (token.states or key.states)
    has_keys = all(_begins_with(restricted.key_prefix, prefix) for prefix in (token.key_prefix, key.key_prefix))
    return restricted if has_states and has_keys else None


def _remember(digest: bytes, checked: _CheckedToken) -> None:
    with _checked_lock:
        if len(_checked) >= MAX_CACHED:
            del _checked[next(iter(_checked))]
        _checked[digest] = checked
