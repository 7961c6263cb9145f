"""This process's client of the Redis that states live in, whose failures are BackendUnavailable."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import redis
from redis.client import Pipeline
from redis.exceptions import DataError, NoScriptError

from state_backends.errors import BackendSetupError, BackendUnavailable


def client(timeout_seconds: float | None) -> redis.Redis:
    """Return a client of the Redis at `REDIS_URL`. Raises BackendSetupError where that is unset or not a URL."""
    url = os.environ.get("REDIS_URL")
    if not url:
        raise BackendSetupError(
            "a state lives in redis, and REDIS_URL is not set here; set it for the driver, its executors and the web"
        )
    return _client(url, timeout_seconds)


@cache
def _client(url: str, timeout_seconds: float | None) -> redis.Redis:
    connect_seconds = min(10.0, timeout_seconds or 10.0)
    try:
        return _Redis.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=connect_seconds)
    except ValueError:
        # The cause may quote a piece of the URL, and so of the password.
        raise BackendSetupError(
            "a state lives in redis, and REDIS_URL is not a URL of one; write it as redis://:password@host:6379/0"
        ) from None


class _Redis(redis.Redis):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        with _unavailable():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        return _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class _Pipeline(Pipeline):
    def execute(self, raise_on_error: bool = True) -> list[Any]:
        with _unavailable():
            return super().execute(raise_on_error)


@contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except (NoScriptError, DataError):
        # The first is answered by sending the script; the second says that a caller's value is wrong.
        raise
    except redis.RedisError as error:
        raise BackendUnavailable(f"redis: {type(error).__name__}: {error}") from error
