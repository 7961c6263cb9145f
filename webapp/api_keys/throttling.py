"""Whose bucket a request takes from: its API key's, its user's, or that of the address it comes from."""

from typing import Any

from django.conf import settings
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from webapp.api_keys.handfuls import take_by_handful
from webapp.api_keys.limits import Verdict, take
from webapp.api_keys.models import ApiKey
from webapp.api_keys.selectors import rate_of
from webapp.client_address import subscriber_of


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
        return "this API key", take_by_handful(f"key:{key.prefix}", rate_of(key), key.burst)
    if request.user.is_authenticated:
        return "this user", take_by_handful(f"user:{request.user.pk}", settings.TIDEMARK_SESSION_RATE_PER_MINUTE)
    return "this address", take(f"address:{subscriber_of(request)}", settings.TIDEMARK_ANONYMOUS_RATE_PER_MINUTE)


def _count_wrong_key(request: Any, cost: int) -> None:
    verdict = take_wrong_secret("key", request, cost=cost)
    if verdict is not None and not verdict.is_allowed:
        raise TooManyRequestsError("this address", verdict)
