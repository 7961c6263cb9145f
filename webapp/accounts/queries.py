"""API keys in the form in which lists show them."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from tidegauge.webapp.accounts.models import ApiKey


@dataclass(frozen=True)
class ApiKeySummary:
    """shown_key: the prefix without the secret. status: active, expired or revoked.

    confined_to, limit: the key scope and the rate limit as text; confined_to is empty if there is no restriction.
    rate: requests per minute, from the settings if the key has no rate of its own; 0: no limit.
    previous_until: when the secret from before the last rotation expires.
    """

    id: int
    name: str
    shown_key: str
    scopes: list[str]
    states: list[str]
    key_prefix: list[Any]
    queries: list[str]
    confined_to: str
    rate: int
    burst: int
    limit: str
    status: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    rotated_at: datetime | None
    previous_until: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None

    @property
    def is_active(self) -> bool:
        return self.status == "active"


def api_keys() -> list[ApiKeySummary]:
    """Return all keys: active ones first, and newer ones before older ones."""
    keys = [_summary(key) for key in ApiKey.objects.select_related("created_by")]
    return sorted(keys, key=lambda key: not key.is_active)


def describe_key_scope(key: ApiKey) -> str:
    """Return the key scope as text, such as `query top, routes, keys ["JFK", ..]`; empty: no restriction."""
    prefix = json.dumps(key.key_prefix, ensure_ascii=False).removesuffix("]")
    queries = [f"query {name}" for name in key.queries]
    return ", ".join([*queries, *key.states, *([f"keys {prefix}, ..]"] if key.key_prefix else [])])


def describe_limit(key: ApiKey) -> str:
    """Return the rate limit as text, such as `600 a minute, 20 at once`."""
    rate = rate_of(key)
    if rate == 0:
        return "none"
    return f"{rate:,} a minute" + (f", {key.burst:,} at once" if key.burst else "")


def rate_of(key: ApiKey) -> int:
    """Return the requests per minute that a key may send, 0 for no limit."""
    return settings.TIDEGAUGE_API_RATE_PER_MINUTE if key.rate is None else key.rate


def _summary(key: ApiKey) -> ApiKeySummary:
    rate = rate_of(key)
    return ApiKeySummary(
        id=key.pk,
        name=key.name,
        shown_key=f"tmk_{key.prefix}_..",
        scopes=key.scopes,
        states=key.states,
        key_prefix=key.key_prefix,
        queries=key.queries,
        confined_to=describe_key_scope(key),
        rate=rate,
        burst=key.burst or rate,
        limit=describe_limit(key),
        status=key.status,
        created_at=key.created_at,
        created_by=key.created_by.get_username() if key.created_by else "",
        expires_at=key.expires_at,
        rotated_at=key.rotated_at,
        previous_until=key.previous_until,
        last_used_at=key.last_used_at,
        revoked_at=key.revoked_at,
    )
