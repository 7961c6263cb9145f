"""Who is limited: API keys, users, and addresses that send wrong keys or passwords; and sign-ins in the audit log.

A rate limit counts by API key, else by user, else by the client's address. Guessing keys and passwords is limited by
address.
"""

from hashlib import sha256
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

# The actor of a failed sign-in in the audit log.
NOBODY = "nobody"


class TooManyRequestsError(Throttled):
    """wait: seconds, for Retry-After."""

    def __init__(self, client: str, verdict: Verdict) -> None:
        super().__init__(detail=f"{client} has sent too many requests; try again in {verdict.wait_seconds} seconds")
        self.wait = verdict.wait_seconds


class RateLimit(BaseThrottle):
    """Adds the RateLimit headers to each answer. Raises TooManyRequestsError."""

    def allow_request(self, request: Request, view: Any) -> bool:
        client, verdict = _take(request)
        if verdict is None:
            return True
        view.headers.update(verdict.headers)
        if not verdict.is_allowed:
            raise TooManyRequestsError(client, verdict)
        return True


def _take(request: Request) -> tuple[str, Verdict | None]:
    key = request.auth
    if isinstance(key, ApiKey):
        return _take_of_key(key)
    if request.user.is_authenticated:
        return "this user", take_batched(f"user:{request.user.pk}", settings.TIDEMARK_SESSION_RATE_PER_MINUTE)
    return "this address", take(f"address:{client_network(request)}", settings.TIDEMARK_ANONYMOUS_RATE_PER_MINUTE)


def _take_of_key(key: ApiKey) -> tuple[str, Verdict | None]:
    """A token with a rate of its own takes from its own bucket first, then from that of its API key."""
    token, own = key.token, None
    if token is not None and token.rate is not None:
        # The caller's name for its user may be personal, and long.
        caller = sha256(token.caller.encode()).hexdigest()[:24]
        own = take_batched(f"token:{key.prefix}:{caller}", token.rate, token.burst)
        if own is not None and not own.is_allowed:
            return "this token", own
    verdict = take_batched(f"key:{key.prefix}", rate_of(key), key.burst)
    if own is None or verdict is None:
        return "this API key", verdict or own
    return "this API key", min(verdict, own, key=lambda each: (each.is_allowed, each.remaining))


def client_address(request: HttpRequest | Request) -> str:
    """Return the client's address, behind a proxy the forwarded one (NUM_PROXIES); empty if unknown."""
    return (BaseThrottle().get_ident(cast(Request, request)) or "")[:64]


def client_network(request: HttpRequest | Request) -> str:
    """Return the addresses that one subscriber usually has: an IPv4 address, or the /64 network of an IPv6 address."""
    text = client_address(request)
    try:
        address = ip_address(text)
    except ValueError:
        return text
    return str(ip_network((address, 64), strict=False)) if isinstance(address, IPv6Address) else text


def check_address(request: Any) -> None:
    """Raises TooManyRequestsError if the address has sent too many wrong keys to have another one looked up."""
    _take_wrong_key(request, cost=0)


def count_wrong_key(request: Any) -> None:
    """Count a wrong key of the address. Raises TooManyRequestsError if it is one too many."""
    _take_wrong_key(request, cost=1)


def _take_wrong_key(request: Any, cost: int) -> None:
    verdict = take_wrong_secret("key", request, cost=cost)
    if verdict is not None and not verdict.is_allowed:
        raise TooManyRequestsError("this address", verdict)


def take_wrong_secret(kind: str, request: Any, cost: int = 1) -> Verdict | None:
    """Take from the wrong keys or wrong passwords that an address may send, as rate_limits.take does."""
    rate = settings.TIDEMARK_WRONG_KEY_RATE_PER_MINUTE
    return take(f"wrong_{kind}:{client_network(request)}", rate, cost=cost)


class SignInLimit:
    """An authentication backend that authenticates no user, but refuses an address with too many wrong passwords."""

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> None:
        verdict = request and take_wrong_secret("password", request, cost=0)
        if verdict and not verdict.is_allowed:
            raise PermissionDenied


def record_sign_in(request: HttpRequest | None, user: Any, **signal: Any) -> None:
    record("user.sign_in", f"user {user.get_username()}", by=user.get_username(), **_address_detail(request))


def record_sign_out(request: HttpRequest | None, user: Any, **signal: Any) -> None:
    if user is not None:
        record("user.sign_out", f"user {user.get_username()}", by=user.get_username(), **_address_detail(request))


def record_failed_sign_in(credentials: dict[str, Any], request: HttpRequest | None = None, **signal: Any) -> None:
    verdict = request and take_wrong_secret("password", request)
    if verdict and not verdict.is_allowed:
        return  # otherwise guessing passwords could fill the table
    users = get_user_model()
    name = str(credentials.get(users.USERNAME_FIELD, ""))
    # An unknown name is not recorded: it may be a password typed into the wrong field.
    known = "\0" not in name and users.objects.filter(**{users.USERNAME_FIELD: name}).exists()
    target = f"user {name}" if known else "an unknown user"
    record("user.failed_sign_in", target, by=NOBODY, **_address_detail(request))


def connect_sign_ins() -> None:
    user_logged_in.connect(record_sign_in)
    user_logged_out.connect(record_sign_out)
    user_login_failed.connect(record_failed_sign_in)


def _address_detail(request: HttpRequest | None) -> dict[str, str]:
    address = client_address(request) if request else ""
    return {"address": address} if address else {}
