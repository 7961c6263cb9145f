"""Authenticates people who sign in at an OpenID Connect provider, by mozilla-django-oidc (extra `oidc`).

The provider's URLs come from its discovery document. A person is identified by issuer and subject, because a name or
an e-mail address may be given to another person. Groups come from a claim at each sign-in. The library does not check
issuer and audience, or that no existing account is taken over, so this module does.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Group
from django.core.exceptions import SuspiciousOperation
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from tidegauge.webapp.accounts.models import OidcIdentity

DISCOVERY = "/.well-known/openid-configuration"

# Lengths of the columns of Django's User.
NAME_LENGTH, ADDRESS_LENGTH = 150, 254


class RefusedError(Exception):
    """The provider has identified a person who may not sign in here. The message is shown to that person."""


@lru_cache(maxsize=1)
def provider(issuer: str) -> Mapping[str, Any]:
    """Return the provider's discovery document; it is read once per process."""
    response = requests.get(issuer.rstrip("/") + DISCOVERY, timeout=settings.OIDC_TIMEOUT)
    response.raise_for_status()
    found: Mapping[str, Any] = response.json()
    if found["issuer"] != issuer:
        raise ValueError(f"the provider calls itself {found['issuer']!r}; set TIDEGAUGE_OIDC_ISSUER to that")
    return found


class OidcBackend(OIDCAuthenticationBackend):
    def __init__(self) -> None:
        # Not the library's own, because that asks the provider for its URLs even if only a permission is checked.
        self.UserModel = get_user_model()
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO = settings.OIDC_RP_SIGN_ALGO
        self.OIDC_RP_IDP_SIGN_KEY = None

    def get_user(self, user_id: Any) -> Any:
        # Not the library's own, because that still accepts the session of a deactivated user.
        user = ModelBackend.get_user(self, user_id)
        if user is not None:
            user.is_from_provider = True  # type: ignore[attr-defined]
        return user

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> Any:
        try:
            return super().authenticate(request, **credentials)
        except RefusedError as error:
            request.refusal = str(error)  # type: ignore[union-attr]
            return None

    @property
    def OIDC_OP_TOKEN_ENDPOINT(self) -> str:  # noqa: N802  the library's name
        return provider(settings.OIDC_ISSUER)["token_endpoint"]

    @property
    def OIDC_OP_USER_ENDPOINT(self) -> str:  # noqa: N802
        return provider(settings.OIDC_ISSUER)["userinfo_endpoint"]

    @property
    def OIDC_OP_JWKS_ENDPOINT(self) -> str:  # noqa: N802
        return provider(settings.OIDC_ISSUER)["jwks_uri"]

    def retrieve_matching_jwk(self, token: str) -> Any:
        if "kid" in jwt.get_unverified_header(token):
            return super().retrieve_matching_jwk(token)
        # A provider with a single key may leave out `kid`.
        answer = requests.get(self.OIDC_OP_JWKS_ENDPOINT, timeout=settings.OIDC_TIMEOUT)
        answer.raise_for_status()
        [key] = answer.json()["keys"]
        return jwt.PyJWK(key)

    def verify_token(self, token: str, **kwargs: Any) -> Mapping[str, Any]:
        claims = super().verify_token(token, **kwargs)
        audience = claims.get("aud")
        if claims.get("iss") != settings.OIDC_ISSUER:
            raise SuspiciousOperation("the token was issued by another provider")
        if self.OIDC_RP_CLIENT_ID not in (audience if isinstance(audience, list) else [audience]):
            raise SuspiciousOperation("the token is for another client")
        return claims

    def get_userinfo(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of both. Those of the token take precedence, because they are signed."""
        found = super().get_userinfo(access_token, id_token, payload)
        if found.get("sub") != payload["sub"]:
            raise SuspiciousOperation("the provider's user info and its token have different subjects")
        return {**found, **payload}

    def verify_claims(self, claims: Mapping[str, Any]) -> bool:
        allowed = settings.OIDC_ALLOWED_GROUPS
        if allowed and _groups(claims).isdisjoint(allowed):
            raise RefusedError("you are not in a group that may sign in here")
        return True

    def filter_users_by_claims(self, claims: Mapping[str, Any]) -> Any:
        return self.UserModel.objects.filter(oidcidentity__issuer=claims["iss"], oidcidentity__subject=claims["sub"])

    def create_user(self, claims: Mapping[str, Any]) -> Any:
        name = str(claims.get(settings.OIDC_USERNAME_CLAIM) or claims["sub"])[:NAME_LENGTH]
        try:
            with transaction.atomic():
                user = self.UserModel.objects.create_user(name, email=_address(claims))
                OidcIdentity.objects.create(user=user, issuer=claims["iss"], subject=claims["sub"])
                return self.update_user(user, claims)
        except IntegrityError:
            raise RefusedError(
                f"another user here has the name {name!r}; ask an administrator to rename that user"
            ) from None

    def update_user(self, user: Any, claims: Mapping[str, Any]) -> Any:
        if settings.OIDC_GROUPS_CLAIM:
            names = _names_here(_groups(claims))
            # Restrictions stay without the claim, because providers may leave it out if there are too many groups.
            has_claim = claims.get(settings.OIDC_GROUPS_CLAIM) is not None
            kept = [] if has_claim else list(user.groups.exclude(restriction=None).values_list("name", flat=True))
            user.groups.set(Group.objects.filter(name__in=[*names, *kept]))
            user.is_staff = not _groups(claims).isdisjoint(settings.OIDC_STAFF_GROUPS)
            user.save(update_fields=["is_staff"])
        return user


def _groups(claims: Mapping[str, Any]) -> set[str]:
    """Return the names that a person's groups have at the provider."""
    found = claims.get(settings.OIDC_GROUPS_CLAIM) or []
    if isinstance(found, str):
        return {found}
    if not isinstance(found, list):
        raise SuspiciousOperation(f"the claim {settings.OIDC_GROUPS_CLAIM!r} is not a list of names")
    return {name for name in found if isinstance(name, str)}


def _names_here(groups: set[str]) -> set[str]:
    """Return our names of the provider's groups. If OIDC_GROUPS maps any, groups that it does not map are ignored."""
    given = settings.OIDC_GROUPS
    return {given[name] for name in groups if name in given} if given else groups


def _address(claims: Mapping[str, Any]) -> str:
    """Return the e-mail address; empty if the provider has not verified it. It never identifies a person."""
    address = str(claims.get("email") or "")
    return address if claims.get("email_verified") is not False and len(address) <= ADDRESS_LENGTH else ""
