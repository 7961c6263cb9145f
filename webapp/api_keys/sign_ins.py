"""People at the door: who signed in, who failed to, and a limit to guessing passwords.

A failed sign-in is noted with its name only if there is such a user: what is typed into the wrong field may be a
password.
"""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from webapp.api_keys.throttling import take_wrong_secret
from webapp.audit.services import record
from webapp.client_address import address_of

NOBODY = "nobody"


class SignInLimit:
    """An authentication backend that knows nobody; it ends the attempts of an address that was wrong too often."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:
        verdict = request and take_wrong_secret("password", request, cost=0)
        if verdict and not verdict.is_allowed:
            raise PermissionDenied


def note_sign_in(request: HttpRequest | None, user: Any, **signal: Any) -> None:
    record("user.sign_in", f"user {user.get_username()}", by=user.get_username(), **_from(request))


def note_sign_out(request: HttpRequest | None, user: Any, **signal: Any) -> None:
    if user is not None:
        record("user.sign_out", f"user {user.get_username()}", by=user.get_username(), **_from(request))


def note_failed_sign_in(credentials: dict[str, Any], request: HttpRequest | None = None, **signal: Any) -> None:
    verdict = request and take_wrong_secret("password", request)
    if verdict and not verdict.is_allowed:
        return  # Else whoever guesses could fill the table, too.
    users = get_user_model()
    name = str(credentials.get(users.USERNAME_FIELD, ""))
    known = "\0" not in name and users.objects.filter(**{users.USERNAME_FIELD: name}).exists()
    record("user.failed_sign_in", f"user {name}" if known else "an unknown user", by=NOBODY, **_from(request))


def listen() -> None:
    user_logged_in.connect(note_sign_in)
    user_logged_out.connect(note_sign_out)
    user_login_failed.connect(note_failed_sign_in)


def _from(request: HttpRequest | None) -> dict[str, str]:
    address = address_of(request) if request else ""
    return {"address": address} if address else {}
