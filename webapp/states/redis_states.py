"""The states that live in Redis: this process's client, and what is known of their size."""

import logging
from collections.abc import Iterable
from functools import cache

import redis
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from state_backends import StateSpec
from state_backends.backends.redis.upkeep import RedisUpkeep

logger = logging.getLogger(__name__)

# A page that waits longer had better say that it cannot be had.
TIMEOUT_SECONDS = 5.0


@cache
def client() -> redis.Redis:
    """Return this process's client of the Redis that states live in. Raises ImproperlyConfigured."""
    try:
        return redis.Redis.from_url(
            settings.REDIS_URL, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
        )
    except ValueError:
        # The cause may quote a piece of the URL, and so of the password.
        raise ImproperlyConfigured("a state lives in Redis: set REDIS_URL, as redis://:password@host:6379/0") from None


def stored_rows(spec: StateSpec) -> RedisUpkeep | None:
    """Return what looks after the rows of a state in Redis, None for one whose rows are in its table."""
    return RedisUpkeep(client(), spec) if spec.backend == "redis" else None


def sizes(specs: Iterable[StateSpec]) -> dict[str, tuple[int, int]]:
    """Return keys and bytes of each state in Redis, by its name; while Redis is away, nothing.

    Keys are counted, with those that are removed or expired and not cleaned up yet; bytes are reckoned from a sample.
    """
    try:
        return {spec.name: RedisUpkeep(client(), spec).sizes() for spec in specs if spec.backend == "redis"}
    except redis.RedisError as error:
        # The rest of the page does not need it.
        logger.warning("no sizes of states in Redis: %s", error)
        return {}
