"""Makes short-lived tokens, within the restrictions of the API key that asks for one (see tokens.py)."""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

import jwt
from django.conf import settings
from django.utils import timezone
from rest_framework.exceptions import ParseError

from tidegauge.webapp.accounts.models import ApiKey, Token
from tidegauge.webapp.accounts.permissions import KeyScope, OutsideError
from tidegauge.webapp.accounts.queries import rate_of
from tidegauge.webapp.accounts.tokens import ALGORITHM, AUDIENCE, OF_QUERIES, begins_with, signing_key

LEAST_SECONDS, DEFAULT_SECONDS, MOST_SECONDS = 10, 600, 24 * 3_600

# The longest token, because proxies accept headers of 8 kB, and each process caches the tokens that it has checked.
MOST_BYTES = 8_000


@dataclass(frozen=True)
class IssuedToken:
    text: str
    token: Token
    token_type: ClassVar[str] = "Bearer"  # noqa: S105 (RFC 6750)


def issue(
    key: ApiKey,
    *,
    states: Sequence[str] = (),
    key_prefix: Sequence[Any] = (),
    queries: Sequence[str] = (),
    rate: int | None = None,
    burst: int | None = None,
    sub: str = "",
    lifetime_seconds: int = DEFAULT_SECONDS,
) -> IssuedToken:
    """Make a token. Empty states, key_prefix and queries: the key's are used; rate None: only the key's limit applies.

    Raises OutsideError for a restriction wider than the key's, ParseError for a burst without a rate and for a token
    that would be too long.
    """
    scope, now = KeyScope.of(key), timezone.now().replace(microsecond=0)
    for name in states:
        scope.of_reads.check_state(name)
    for name in queries:
        scope.check_query(name)
    if key_prefix and not begins_with(key_prefix, key.key_prefix):
        raise OutsideError(f"key_prefix: this API key is restricted to {json.dumps(key.key_prefix)}")
    _check_rate(key, rate, burst)
    expires_at = now + timedelta(seconds=lifetime_seconds)
    token = Token(
        id=f"{key.prefix}-{secrets.token_hex(8)}",
        sub=sub,
        states=sorted(set(states)) or key.states,
        key_prefix=list(key_prefix) or key.key_prefix,
        queries=sorted(set(queries)) or key.queries,
        rate=rate,
        burst=burst,
        # Not later than the key, whose own expiry is also checked at each use.
        expires_at=expires_at if key.expires_at is None else min(expires_at, key.expires_at),
    )
    text = _encoded(key, token, now)
    if len(text) > MOST_BYTES:
        raise ParseError(
            f"the token would have {len(text)} bytes, over the limit of {MOST_BYTES}; name fewer states, or a shorter "
            "key_prefix"
        )
    return IssuedToken(text, token)


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
    audience = OF_QUERIES if token.queries else AUDIENCE
    claims = {
        "iss": settings.TIDEGAUGE_TOKEN_ISSUER, "aud": audience, "iat": now, "nbf": now, "exp": token.expires_at,
        "jti": token.id, "states": token.states, "key_prefix": token.key_prefix,
    }  # fmt: skip
    optional = {"sub": token.sub or None, "queries": token.queries or None, "rate": token.rate, "burst": token.burst}
    claims |= {name: value for name, value in optional.items() if value is not None}
    return jwt.encode(claims, signing_key(key.secret_sha512), ALGORITHM, headers={"kid": key.prefix})
