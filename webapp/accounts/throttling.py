"""Where a request comes from, for limits and for the audit."""

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from webapp.accounts.audit.services import record
from webapp.accounts.models import ApiKey
from webapp.accounts.queries import rate_of
from webapp.accounts.rate_limits import Verdict, take, take_batched


def address_of(request: HttpRequest | Request) -> str:
    """Return the client's address, which a proxy names if there is one (NUM_PROXIES); empty where nobody knows."""
    return (BaseThrottle().get_ident(cast(Request, request)) or "")[:64]


def subscriber_of(request: HttpRequest | Request) -> str:
    """Return what one subscriber has of addresses: one of IPv4, a whole network of IPv6."""
    shown = address_of(request)
    try:
        address = ip_address(shown)
    except ValueError:
        return shown
    return str(ip_network((address, 64), strict=False)) if isinstance(address, IPv6Address) else shown


# Whose bucket a request takes from: its API key's, its user's, or that of the address it comes from.


class TooManyRequestsError(Throttled):
    """wait: seconds, for Retry-After."""

    def __init__(self, whose: str, verdict: Verdict) -> None:
        super().__init__(detail=f"{whose} has asked too often; ask again in {verdict.wait_seconds} seconds")
        self.wait = verdict.wait_seconds


class RateLimit(BaseThrottle):
    """Refuses what comes too often, and tells each answer how much is left. Raises TooManyRequestsError."""

    def allow_request(self, request: Request, view: Any) -> bool:
        whose, verdict = _taken(request)
        if verdict is None:
            return True
        view.headers.update(verdict.headers)
        if not verdict.is_allowed:
            raise TooManyRequestsError(whose, verdict)
        return True


def check_address(request: Any) -> None:
    """Refuse to look at another unknown key from an address that has shown too many. Raises TooManyRequestsError."""
    _count_wrong_key(request, cost=0)


def count_wrong_key(request: Any) -> None:
    """Raises TooManyRequestsError where it is one too many."""
    _count_wrong_key(request, cost=1)


def take_wrong_secret(kind: str, request: Any, cost: int = 1) -> Verdict | None:
    """Take from what an address may get wrong of a kind of secret; as limits.take."""
    rate = settings.TIDEMARK_WRONG_KEY_RATE_PER_MINUTE
    return take(f"wrong_{kind}:{subscriber_of(request)}", rate, cost=cost)


def _taken(request: Request) -> tuple[str, Verdict | None]:
    key = request.auth
    if isinstance(key, ApiKey):
        return "this API key", take_batched(f"key:{key.prefix}", rate_of(key), key.burst)
    if request.user.is_authenticated:
        return "this user", take_batched(f"user:{request.user.pk}", settings.TIDEMARK_SESSION_RATE_PER_MINUTE)
    return "this address", take(f"address:{subscriber_of(request)}", settings.TIDEMARK_ANONYMOUS_RATE_PER_MINUTE)


def _count_wrong_key(request: Any, cost: int) -> None:
    verdict = take_wrong_secret("key", request, cost=cost)
    if verdict is not None and not verdict.is_allowed:
        raise TooManyRequestsError("this address", verdict)


# People at the door: who signed in, who failed to, and a limit to guessing passwords.
#
# A failed sign-in is noted with its name only if there is such a user: what is typed into the wrong field may be a
# password.


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
