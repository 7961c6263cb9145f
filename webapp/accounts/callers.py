"""Whose work a request is, before anything was read or run for it: an API key's, a signed-in person's, or an address's.

Credentials count only once this process has verified them. So nobody chooses a caller: somebody who sends a thousand
keys that do not exist is one address, and waits for its own turns.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from rest_framework.request import Request

from tidegauge.webapp.accounts import authentication, known_sessions, throttling

ADDRESS = "address "


class Caller(NamedTuple):
    """name: what turns and bytes are charged to. is_verified: an API key or session that is known to this process."""

    name: str
    is_verified: bool


def caller_of(meta: Mapping[str, Any]) -> Caller:
    """Return the caller of a request by its WSGI environment. It asks no database."""
    key = authentication.known(meta)
    if key is not None:
        return Caller(f"key {key.pk}", is_verified=True)
    # Where a request has an API key, its session does not count.
    user = None if authentication.has_api_key(meta) else known_sessions.user_of(meta)
    if user is not None:
        return Caller(f"user {user}", is_verified=True)
    return Caller(f"{ADDRESS}{_network(meta)}", is_verified=False)


def seconds_refused(meta: Mapping[str, Any], caller: Caller) -> int:
    """Return for how long the caller's wrong keys are refused, if this is one of them; else 0. It asks nobody."""
    seconds = 0 if caller.is_verified else throttling.seconds_refused(caller.name.removeprefix(ADDRESS))
    return seconds if seconds and authentication.cannot_be_valid(meta) else 0


def _network(meta: Mapping[str, Any]) -> str:
    # What DRF reads of a request to find its address.
    headers = {"x-forwarded-for": meta.get("HTTP_X_FORWARDED_FOR")}
    request = cast(Request, SimpleNamespace(META=meta, headers=headers))
    return throttling.client_network(request)
