"""Signing in and out at an identity provider: the code flow with PKCE, as pages."""

import logging
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import jwt
import requests
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY
from django.contrib.auth.views import LogoutView
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from tidegauge.webapp.accounts.oidc import provider

logger = logging.getLogger(__name__)

# Of a browser that was sent to the provider and has not come back yet.
COOKIE, COOKIE_AGE = "tidegauge_oidc", timedelta(minutes=30)

# Errors of the connection to the provider, and of what it answers.
FAILURES = (requests.RequestException, SuspiciousOperation, jwt.PyJWTError, ValueError, KeyError)


class PendingSignIns(SessionStore):
    """Keeps the library's data of unfinished sign-ins in a signed cookie, so that strangers cannot add session rows."""

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
    """Signs in the person whom the provider has sent back."""

    def get(self, request: HttpRequest) -> HttpResponse:
        # Not left to the library, because it would sign the user out, even if another site sent the browser here.
        if "error" in request.GET:
            return _failed(request, SuspiciousOperation(f"the provider answered {request.GET['error'][:60]!r}"))
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
        # A time and not a duration, because each change of the session would restart a duration.
        self.own.set_expiry(timezone.now() + timedelta(hours=settings.OIDC_SESSION_HOURS))
        pending.keep_in(response)
        return response

    def login_failure(self) -> HttpResponse:
        is_inactive = getattr(self, "user", None) is not None
        return _failed(self.request, None, "your account here is deactivated" if is_inactive else "")


class SignOutView(LogoutView):
    """Signs out here, and offers people who came from the provider to sign out there as well."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        came_from_provider = request.session.get(BACKEND_SESSION_KEY) == settings.OIDC_BACKEND
        response: HttpResponse = super().post(request, *args, **kwargs)
        there = _sign_out_address() if came_from_provider else ""
        return render(request, "registration/signed_out.html", {"there": there}) if there else response


def _sign_out_address() -> str:
    """Return the provider's sign-out page; empty if it has none or is unavailable."""
    try:
        address = provider(settings.OIDC_ISSUER).get("end_session_endpoint")
    except FAILURES:
        return ""
    if not address:
        return ""
    return address + ("&" if "?" in address else "?") + urlencode({"client_id": settings.OIDC_RP_CLIENT_ID})


def _failed(request: HttpRequest, error: Exception | None, refusal: str = "") -> HttpResponse:
    refusal = refusal or getattr(request, "refusal", "")
    # Of the libraries' errors only the type, because their text may quote an answer of the provider with a token.
    reason = str(error) if isinstance(error, SuspiciousOperation | ValueError | KeyError) else type(error).__name__
    logger.warning("sign-in at the identity provider failed: %s", refusal or reason)
    is_away = isinstance(error, requests.ConnectionError | requests.Timeout)
    context = {"refusal": refusal, "is_away": is_away, "passwords": settings.PASSWORD_SIGN_IN}
    return render(request, "registration/oidc_failed.html", context, status=503 if is_away else 403)
