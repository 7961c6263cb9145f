"""Revokes single tokens before they expire. The list is read with the API key, so that checking it costs no query.

A token's id begins with the prefix of its API key, and an API key can revoke only ids with its own prefix. Whether the
key has really made such a token is not checked, because nothing is stored about a token until it is revoked.
"""

import re
from datetime import timedelta

import jwt
from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import OuterRef
from django.utils import timezone
from rest_framework.exceptions import APIException

from tidegauge.webapp.accounts import tokens
from tidegauge.webapp.accounts.actors import Actor, name_of
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.accounts.issuing import MOST_SECONDS
from tidegauge.webapp.accounts.models import ApiKey, RevokedToken

TOKEN_ID = re.compile(r"(?P<prefix>[0-9a-f]{8})-[0-9a-f]{16}")
# Limited, because a process reads all revoked tokens of an API key whenever it reads the key.
MOST_REVOKED = 10_000


class UnknownTokenError(APIException):
    """No API key can have made a token with this id, or another API key did."""

    status_code = 404


class TooManyRevokedError(APIException):
    """The API key has too many revoked tokens that have not expired. End all of its tokens instead."""

    status_code = 409


def revoke_token(token_id: str, *, by: Actor, of: ApiKey | None = None) -> None:
    """Refuse a token from now on, in other processes within TIDEGAUGE_API_KEY_CACHE_SECONDS. Idempotent.

    of: the API key that made it, if that is known; an API key revokes only its own tokens. Raises UnknownTokenError,
    TooManyRevokedError.
    """
    key, expected = _key_of(token_id), by if isinstance(by, ApiKey) else of
    if key is None or expected not in (None, key):
        raise UnknownTokenError(f"token {token_id[:40]!r} belongs to no API key, or to another one")
    now = timezone.now()
    with transaction.atomic():
        # Lock the key, so that two revocations at once cannot both see a count below the limit.
        ApiKey.objects.select_for_update(of=("self",)).get(pk=key.pk)
        forget_expired()
        if RevokedToken.objects.filter(prefix=key.prefix).count() >= MOST_REVOKED:
            raise TooManyRevokedError(
                f"{key} has {MOST_REVOKED} revoked tokens that have not expired; rotate it without a grace period, or "
                "revoke it, which ends all of its tokens"
            )
        # The latest possible time, because only the token itself says when it expires.
        expires_at = now + timedelta(seconds=MOST_SECONDS) + tokens.CLOCK_SKEW
        row = {"prefix": key.prefix, "expires_at": expires_at}
        if RevokedToken.objects.get_or_create(id=token_id, defaults=row)[1]:
            record("token.revoke", f"API key {key}", by=name_of(by), token=token_id)
    tokens.forget_key(key.prefix)


def id_of(text: str) -> str:
    """Return the id of a token. text: the token, or already its id. Empty if it has none. Ignores the signature."""
    if not tokens.is_token(text):
        return text
    try:
        return str(jwt.decode(text, options={"verify_signature": False}).get("jti", ""))
    except jwt.InvalidTokenError:
        return ""


def find_key(prefix: str) -> ApiKey | None:
    """Return the API key that is not revoked, with the ids of its revoked tokens, in one query."""
    ids = RevokedToken.objects.filter(prefix=OuterRef("prefix")).values("id")
    found = ApiKey.objects.filter(prefix=prefix, revoked_at=None).annotate(revoked=ArraySubquery(ids)).first()
    if found is not None:
        found.revoked_tokens = frozenset(found.revoked)
    return found


def forget_expired() -> None:
    """Delete the rows of tokens that have expired. Runs on the schedule, and before each revocation."""
    RevokedToken.objects.filter(expires_at__lt=timezone.now()).delete()


def _key_of(token_id: str) -> ApiKey | None:
    form = TOKEN_ID.fullmatch(token_id)
    return None if form is None else ApiKey.objects.filter(prefix=form["prefix"]).first()
