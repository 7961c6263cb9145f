"""Who is limited: API keys, users, and addresses that send wrong keys.

A rate limit counts by API key, else by user, else by the client's address. Several clients may share an address, such
as those behind a proxy that is not in the settings, so a valid API key is never refused because of others' wrong keys.
"""

import math
import time
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.queries import rate_of
from tidegauge.webapp.accounts.rate_limits import Taking, Verdict, in_thread, take, take_batched, taking_batched

# Addresses with too many wrong keys, and until when they are refused, on the monotonic clock.
_refused_until: dict[str, float] = {}
MOST_REFUSED = 10_000


class TooManyRequestsError(Throttled):
    """wait: seconds, for Retry-After."""

    def __init__(self, client: str, seconds: int) -> None:
        super().__init__(detail=f"{client} has sent too many requests; try again in {seconds} seconds")
        self.wait = seconds


# Where the environment of a request says what was taken for it already, on the event loop. No header has such a name.
TAKEN = "tidegauge.taken"


class RateLimit(BaseThrottle):
    """Adds the RateLimit headers to each answer. Raises TooManyRequestsError."""

    def allow_request(self, request: Request, view: Any) -> bool:
        client, verdict = request.META.get(TAKEN) or _take(request)
        if verdict is None:
            return True
        view.headers.update(verdict.headers)
        if not verdict.is_allowed:
            raise TooManyRequestsError(client, verdict.wait_seconds)
        return True


def _take(request: Request) -> tuple[str, Verdict | None]:
    key = request.auth
    if isinstance(key, ApiKey):
        return in_thread(taking_of_key(key))
    if request.user.is_authenticated:
        return "this user", take_batched(f"user:{request.user.pk}", settings.TIDEGAUGE_SESSION_RATE_PER_MINUTE)
    return "this address", take(f"address:{client_network(request)}", settings.TIDEGAUGE_ANONYMOUS_RATE_PER_MINUTE)


def taking_of_key(key: ApiKey) -> Taking[tuple[str, Verdict | None]]:
    """Take from the bucket of a token, if it has a rate of its own, and then from that of its API key."""
    token, own = key.token, None
    if token is not None and token.rate is not None:
        # Hashed, because the program's name for its user may be personal data, and long.
        caller = sha256(token.caller.encode()).hexdigest()[:24]
        own = yield from taking_batched(f"token:{key.prefix}:{caller}", token.rate, token.burst)
        if own is not None and not own.is_allowed:
            return "this token", own
    verdict = yield from taking_batched(f"key:{key.prefix}", rate_of(key), key.burst)
    if own is None or verdict is None:
        return "this API key", verdict or own
    return "this API key", min(verdict, own, key=lambda each: (each.is_allowed, each.remaining))


def client_address(request: HttpRequest | Request) -> str:
    """Return the client's address, or behind a proxy the forwarded address (NUM_PROXIES); empty if unknown."""
    return (BaseThrottle().get_ident(cast(Request, request)) or "")[:64]


def client_network(request: HttpRequest | Request) -> str:
    """Return the network that one subscriber usually has: an IPv4 address, or the /64 network of an IPv6 address."""
    text = client_address(request)
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address):
        # A server that listens on `::` sees IPv4 clients as ::ffff:192.0.2.7, all of them in one /64 network.
        return str(address.ipv4_mapped or ip_network((address, 64), strict=False))
    return text


def check_address(request: Any) -> None:
    """Raises TooManyRequestsError if the address has sent too many wrong keys."""
    _take_wrong_key(request, cost=0)


def count_wrong_key(request: Any) -> None:
    """Count a wrong key of the address. Raises TooManyRequestsError if it is one too many."""
    _take_wrong_key(request, cost=1)


def seconds_refused(network: str) -> int:
    """Return for how long this process refuses wrong keys of an address without asking Redis; 0: it does not."""
    return max(0, math.ceil(_refused_until.get(network, 0.0) - time.monotonic()))


def _take_wrong_key(request: Any, cost: int) -> None:
    network = client_network(request)
    verdict = take(f"wrong_key:{network}", settings.TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE, cost=cost)
    if verdict is not None and not verdict.is_allowed:
        if len(_refused_until) >= MOST_REFUSED:
            _refused_until.clear()
        _refused_until[network] = time.monotonic() + verdict.wait_seconds
        raise TooManyRequestsError("this address", verdict.wait_seconds)
