"""Signing in at an identity provider by OpenID Connect: the code flow with PKCE, by mozilla-django-oidc (extra `oidc`).

The provider's addresses come from its discovery document. A person is who the provider says: its issuer and subject,
not a name or an e-mail address, which may be given to another person. Groups come from a claim at each sign-in. What
the library leaves to its users is checked here: issuer, audience, and that no existing account is taken over.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from webapp.accounts.models import OidcIdentity

logger = logging.getLogger(__name__)

DISCOVERY = "/.well-known/openid-configuration"

# Of a browser that has gone to the provider and not come back.
COOKIE, COOKIE_AGE = "tidemark_oidc", timedelta(minutes=30)

# What goes wrong between this process and the provider, or with what it answers.
FAILURES = (requests.RequestException, SuspiciousOperation, jwt.PyJWTError, ValueError, KeyError)


@lru_cache(maxsize=1)
def provider(issuer: str) -> Mapping[str, Any]:
    """Return the provider's discovery document; it is read once per process."""
    response = requests.get(issuer.rstrip("/") + DISCOVERY, timeout=settings.OIDC_TIMEOUT)
    response.raise_for_status()
    found: Mapping[str, Any] = response.json()
    if found["issuer"] != issuer:
        raise ValueError(f"the provider calls itself {found['issuer']!r}; set TIDEMARK_OIDC_ISSUER to that")
    return found


class OidcBackend(OIDCAuthenticationBackend):
    def __init__(self) -> None:
        # The library's own asks for the provider's addresses, also where only a permission is checked.
        self.UserModel = get_user_model()
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID
        self.OIDC_RP_CLIENT_SECRET = settings.OIDC_RP_CLIENT_SECRET
        self.OIDC_RP_SIGN_ALGO = settings.OIDC_RP_SIGN_ALGO
        self.OIDC_RP_IDP_SIGN_KEY = None

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
        # A provider with a single key need not name it.
        answer = requests.get(self.OIDC_OP_JWKS_ENDPOINT, timeout=settings.OIDC_TIMEOUT)
        answer.raise_for_status()
        [key] = answer.json()["keys"]
        return jwt.PyJWK(key)

    def verify_token(self, token: str, **kwargs: Any) -> Mapping[str, Any]:
        claims = super().verify_token(token, **kwargs)
        audience = claims.get("aud")
        if claims.get("iss") != settings.OIDC_ISSUER:
            raise SuspiciousOperation("the token is of another issuer")
        if self.OIDC_RP_CLIENT_ID not in (audience if isinstance(audience, list) else [audience]):
            raise SuspiciousOperation("the token is for another client")
        return claims

    def get_userinfo(self, access_token: str, id_token: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of both, those of the token first, which are signed."""
        found = super().get_userinfo(access_token, id_token, payload)
        if found.get("sub") != payload["sub"]:
            raise SuspiciousOperation("the provider's answer is about another subject than its token")
        return {**found, **payload}

    def verify_claims(self, claims: Mapping[str, Any]) -> bool:
        allowed = settings.OIDC_ALLOWED_GROUPS
        return not allowed or not _groups(claims).isdisjoint(allowed)

    def filter_users_by_claims(self, claims: Mapping[str, Any]) -> Any:
        return self.UserModel.objects.filter(oidcidentity__issuer=claims["iss"], oidcidentity__subject=claims["sub"])

    def create_user(self, claims: Mapping[str, Any]) -> Any:
        name = str(claims.get(settings.OIDC_USERNAME_CLAIM) or claims["sub"])[:150]
        if self.UserModel.objects.filter(username=name).exists():
            raise SuspiciousOperation(f"another user has the name {name!r}; rename that one")
        with transaction.atomic():
            user = self.UserModel.objects.create_user(name, email=str(claims.get("email") or ""))
            OidcIdentity.objects.create(user=user, issuer=claims["iss"], subject=claims["sub"])
            return self.update_user(user, claims)

    def update_user(self, user: Any, claims: Mapping[str, Any]) -> Any:
        if settings.OIDC_GROUPS_CLAIM:
            names = {settings.OIDC_GROUPS.get(name, name) for name in _groups(claims)}
            # Providers also leave the claim out where there are too many groups: that must not lift a restriction.
            has_claim = settings.OIDC_GROUPS_CLAIM in claims
            kept = [] if has_claim else list(user.groups.exclude(restriction=None).values_list("name", flat=True))
            user.groups.set(Group.objects.filter(name__in=[*names, *kept]))
            user.is_staff = not _groups(claims).isdisjoint(settings.OIDC_STAFF_GROUPS)
            user.save(update_fields=["is_staff"])
        return user


def _groups(claims: Mapping[str, Any]) -> set[str]:
    found = claims.get(settings.OIDC_GROUPS_CLAIM) or []
    return {found} if isinstance(found, str) else {str(name) for name in found}


class PendingSignIns(SessionStore):
    """What the library keeps of sign-ins under way, in a signed cookie: in sessions, strangers could make rows."""

    def get_session_cookie_age(self) -> int:
        return int(COOKIE_AGE.total_seconds())

    @classmethod
    def of(cls, request: HttpRequest) -> "PendingSignIns":
        return cls(request.COOKIES.get(COOKIE))

    def keep_in(self, response: HttpResponse) -> None:
        self.save()
        response.set_cookie(
            COOKIE, self.session_key or "", max_age=COOKIE_AGE, path="/oidc/", secure=settings.SESSION_COOKIE_SECURE,
            httponly=True, samesite="Lax",
        )  # fmt: skip


class SignInView(OIDCAuthenticationRequestView):
    """Sends the browser to the provider."""

    def __init__(self, **options: Any) -> None:
        super(OIDCAuthenticationRequestView, self).__init__(**options)
        self.OIDC_RP_CLIENT_ID = settings.OIDC_RP_CLIENT_ID

    @property
    def OIDC_OP_AUTH_ENDPOINT(self) -> str:  # noqa: N802
        return provider(settings.OIDC_ISSUER)["authorization_endpoint"]

    def get(self, request: HttpRequest) -> HttpResponse:
        own, request.session = request.session, PendingSignIns.of(request)
        try:
            response = super().get(request)
            request.session.keep_in(response)
        except FAILURES as error:
            return _failed(request, error)
        finally:
            request.session = own
        return response


class CallbackView(OIDCAuthenticationCallbackView):
    """The browser comes back from the provider."""

    def get(self, request: HttpRequest) -> HttpResponse:
        self.own, request.session = request.session, PendingSignIns.of(request)
        try:
            return super().get(request)
        except FAILURES as error:
            return _failed(request, error)
        finally:
            request.session = self.own

    def login_success(self) -> HttpResponse:
        pending, response = self.request.session, HttpResponseRedirect(self.success_url)
        self.request.session = self.own
        super().login_success()
        pending.keep_in(response)
        return response

    def login_failure(self) -> HttpResponse:
        return _failed(self.request, None)


def _failed(request: HttpRequest, error: Exception | None) -> HttpResponse:
    # The type alone where the provider answered: its answer may hold a token.
    reason = str(error) if isinstance(error, SuspiciousOperation | ValueError | KeyError) else type(error).__name__
    logger.warning("sign-in at the identity provider failed: %s", reason)
    return render(request, "registration/oidc_failed.html", status=403)
