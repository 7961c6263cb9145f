"""Sign-in with a password: limits guessing, locks nobody out because of others, and records sign-ins in the audit log.

Wrong passwords are counted by address and user name together, so clients that share an address do not block each other.
Guesses of one name from all addresses have a limit of their own; an address with few wrong passwords for the name may
still try. A browser in which this user has signed in before (the cookie DEVICE_COOKIE) has its own count, so others
never block it. After twice the guesses of a minute, a limit refills more slowly. See docs/adr/access.md.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from tidegauge.webapp.accounts.audit.services import record
from tidegauge.webapp.accounts.password_checks import password_checks
from tidegauge.webapp.accounts.rate_limits import Verdict, take
from tidegauge.webapp.accounts.throttling import client_address, client_network

# The actor of a failed sign-in in the audit log.
NOBODY = "nobody"

DEVICE_COOKIE = "tidegauge_device"
DEVICE_AGE = timedelta(days=180)
SALT = "tidegauge.webapp.accounts.sign_in"

# Allowed guesses of a name from all addresses together, as a multiple of those from one address.
EVERYWHERE = 10
# Wrong passwords that an address may send for a name that is guessed from elsewhere, because people make mistakes.
OWN_MISTAKES = 3


class PasswordBackend(ModelBackend):
    """Authenticates by password, and refuses to check one after too many wrong ones."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **more
    ):
        name = username or more.get(get_user_model().USERNAME_FIELD)
        if request is None or name is None or password is None:
            return super().authenticate(request, username, password, **more)
        attempts = _Attempts(request, name)
        request.is_password_checked = False  # type: ignore[attr-defined]
        if not attempts.is_allowed():
            raise PermissionDenied
        with attempts.turn():
            request.is_password_checked = True  # type: ignore[attr-defined]
            user = super().authenticate(request, username, password, **more)
        if user is None:
            raise PermissionDenied  # because the next backend would check the password a second time
        return user


class _Attempts:
    """The counts of wrong passwords that limit one sign-in: its device's, or its address's and its user name's."""

    def __init__(self, request: HttpRequest, name: str) -> None:
        self._user = _digest(name)
        self._device = _known_device(request, self._user)
        self._network = client_network(request)

    def is_allowed(self) -> bool:
        if self._device:
            return _are_allowed(self._of_device(cost=0))
        here = self._here(cost=0)
        return _are_allowed(here) and (_are_allowed(self._everywhere(cost=0)) or _used(here[-1]) < OWN_MISTAKES)

    def count(self) -> bool:
        """Count a wrong password. Returns whether to record it; not after too many of its address."""
        if self._device:
            self._of_device(cost=1)
        else:
            self._here(cost=1)
            self._everywhere(cost=1)
        return _are_allowed([self._address(cost=1)])

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for other password checks, unless the browser is known. Raises PermissionDenied if there are many."""
        if self._device:
            yield
            return
        with password_checks.turn(self._network, is_suspect=not _are_allowed([self._address(cost=0)])):
            yield

    def _of_device(self, cost: int) -> list[Verdict | None]:
        return _take_both(f"device:{self._device}", 1, cost)

    def _here(self, cost: int) -> list[Verdict | None]:
        return _take_both(f"{self._network}:{self._user}", 1, cost)

    def _everywhere(self, cost: int) -> list[Verdict | None]:
        return _take_both(f"user:{self._user}", EVERYWHERE, cost)

    def _address(self, cost: int) -> Verdict | None:
        rate = settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE
        return take(f"wrong_password:{self._network}", rate, cost=cost)


def _take_both(name: str, times: int, cost: int) -> list[Verdict | None]:
    """Take from the bucket of one minute, and from one twice as large that refills by `times` requests a minute."""
    rate = settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE * times
    slow = take(f"wrong_password:slow:{name}", min(rate, times), 2 * rate, cost=cost)
    return [take(f"wrong_password:{name}", rate, cost=cost), slow]


def _are_allowed(verdicts: list[Verdict | None]) -> bool:
    return all(verdict is None or verdict.is_allowed for verdict in verdicts)


def _used(verdict: Verdict | None) -> int:
    return 0 if verdict is None else verdict.limit - verdict.remaining


class KnownDevices:
    """Middleware. Sets DEVICE_COOKIE in a browser when a user signs in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        name = getattr(request, "signed_in_as", None)
        if name is not None:
            value = signing.dumps([_digest(name), secrets.token_hex(8)], salt=SALT)
            response.set_cookie(
                DEVICE_COOKIE, value, max_age=DEVICE_AGE, secure=settings.SESSION_COOKIE_SECURE, httponly=True,
                samesite="Lax",
            )  # fmt: skip
        return response


def _known_device(request: HttpRequest, user: str) -> str:
    """Return the id of the browser if this user has signed in in it before, otherwise an empty string."""
    try:
        signed_in, device = signing.loads(request.COOKIES.get(DEVICE_COOKIE, ""), salt=SALT, max_age=DEVICE_AGE)
    except (signing.BadSignature, ValueError, TypeError):
        return ""
    return device if signed_in == user else ""


def _digest(name: str) -> str:
    return sha256(name.encode(errors="surrogatepass")).hexdigest()[:24]


def record_sign_in(request: HttpRequest | None, user: Any, **signal: Any) -> None:
    if request is not None:
        request.signed_in_as = user.get_username()  # type: ignore[attr-defined]
    record("user.sign_in", f"user {user.get_username()}", by=user.get_username(), **_address_detail(request))


def record_sign_out(request: HttpRequest | None, user: Any, **signal: Any) -> None:
    if user is not None:
        record("user.sign_out", f"user {user.get_username()}", by=user.get_username(), **_address_detail(request))


def record_failed_sign_in(credentials: dict[str, Any], request: HttpRequest | None = None, **signal: Any) -> None:
    users = get_user_model()
    name = str(credentials.get(users.USERNAME_FIELD, ""))
    if request is not None:
        is_checked = getattr(request, "is_password_checked", True)
        if not is_checked or not _Attempts(request, name).count():
            return  # not recorded, because guessing passwords could fill the table
    # An unknown name is not recorded, because it may be a password typed into the wrong field.
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
