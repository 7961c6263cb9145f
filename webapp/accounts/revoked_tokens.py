"""Revokes single tokens before they expire: a list that is read with the API key, so that checking it costs no query.

A token's id begins with the prefix of its API key, which revokes its own tokens alone, whether or not it has made them:
nothing is stored of a token until it is revoked.
"""

import re
from datetime import timedelta

import jwt
from django.contrib.auth.models import User
from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import OuterRef
from django.utils import timezone
from rest_framework.exceptions import APIException

from tidegauge.webapp.accounts import tokens
from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.accounts.issuing import MOST_SECONDS
from tidegauge.webapp.accounts.models import ApiKey, RevokedToken

TOKEN_ID = re.compile(r"(?P<prefix>[0-9a-f]{8})-[0-9a-f]{16}")
# A process reads those of an API key whenever it reads the key.
MOST_REVOKED = 10_000


class UnknownTokenError(APIException):
    """No API key can have made a token of this id, or not this one."""

    status_code = 404


class TooManyRevokedError(APIException):
    """The API key has as many revoked tokens that have not expired as it may: end all of its tokens instead."""

    status_code = 409


def revoke_token(token_id: str, *, by: ApiKey | User | None, of: ApiKey | None = None) -> None:
    """Refuse a token from now on; other processes within TIDEGAUGE_API_KEY_CACHE_SECONDS. Repeating it changes nothing.

    of: the API key that made it, if that is known; an API key revokes its own tokens. Raises UnknownTokenError,
    TooManyRevokedError.
    """
    key, expected = _key_of(token_id), by if isinstance(by, ApiKey) else of
    if key is None or expected not in (None, key):
        raise UnknownTokenError(f"token {token_id[:40]!r} is of no API key, or of another one")
    now = timezone.now()
    with transaction.atomic():
        # One after the other, so that the count holds.
        ApiKey.objects.select_for_update(of=("self",)).get(pk=key.pk)
        forget_expired()
        if RevokedToken.objects.filter(prefix=key.prefix).count() >= MOST_REVOKED:
            raise TooManyRevokedError(
                f"{key} has {MOST_REVOKED} revoked tokens that have not expired; rotate it without a grace period, or "
                "revoke it, which ends all of its tokens"
            )
        # When it expires is known to the token alone.
        expires_at = now + timedelta(seconds=MOST_SECONDS) + tokens.CLOCK_SKEW
        row = {"prefix": key.prefix, "expires_at": expires_at}
        if RevokedToken.objects.get_or_create(id=token_id, defaults=row)[1]:
            record("token.revoke", f"API key {key}", by=_actor(by), token=token_id)
    tokens.forget_key(key.prefix)


def id_of(text: str) -> str:
    """Return the id of a token, which may be given as its id. The signature is not checked. Empty if it has none."""
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
    """Delete the rows of tokens that have expired. Part of the schedule."""
    RevokedToken.objects.filter(expires_at__lt=timezone.now()).delete()


def _key_of(token_id: str) -> ApiKey | None:
    form = TOKEN_ID.fullmatch(token_id)
    return None if form is None else ApiKey.objects.filter(prefix=form["prefix"]).first()


def _actor(by: ApiKey | User | None) -> str:
    if by is None:
        return "the command line"
    return f"API key {by.name}" if isinstance(by, ApiKey) else by.get_username()
