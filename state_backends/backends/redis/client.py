"""This process's client of the Redis that states live in: one server, a Sentinel's master, or a cluster.

Its failures are raised as BackendUnavailable. Its address is `TIDEGAUGE_REDIS_URL`, or else `REDIS_URL`, which the
broker and the rate limits use as well. Those cannot use a cluster.

    redis://:password@host:6379/0                             one server; rediss:// and unix:// as redis-py has them
    redis+sentinel://:password@host:26379,host:26379/name/0   the master of that name, as Sentinels know it
    redis+cluster://:password@host:7000,host:7001             a cluster, by some of its nodes

`rediss+sentinel` and `rediss+cluster` use TLS. User and password are for the servers; Sentinels are asked without them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import redis
from redis.client import Pipeline
from redis.cluster import ClusterNode, ClusterPipeline, RedisCluster
from redis.exceptions import DataError, NoScriptError, RedisClusterException
from redis.sentinel import Sentinel

from tidegauge.state_backends.errors import BackendSetupError, BackendUnavailable

SETTINGS = ("TIDEGAUGE_REDIS_URL", "REDIS_URL")

# Both, because RedisClusterException, raised if no node of a cluster answers, is not a RedisError.
FAILURES = (redis.RedisError, RedisClusterException)

FORMS = (
    "redis://:password@host:6379/0, redis+sentinel://:password@host:26379,host:26379/name/0 or "
    "redis+cluster://:password@host:7000,host:7001"
)


def client(timeout_seconds: float | None) -> "redis.Redis | RedisCluster":
    """Return a client of the Redis that the environment names. Raises BackendSetupError if it names none."""
    url, setting = address()
    return _client(url, setting, timeout_seconds)


def address() -> tuple[str, str]:
    """Return the URL and the setting that has it. Raises BackendSetupError if none has."""
    for setting in SETTINGS:
        if url := os.environ.get(setting):
            return url, setting
    raise BackendSetupError(
        "a state lives in redis, but REDIS_URL is not set here; set it, or TIDEGAUGE_REDIS_URL for states only, for "
        "the driver, its executors and the web"
    )


@contextmanager
def unavailable() -> Iterator[None]:
    """Raise what Redis raises as BackendUnavailable."""
    try:
        yield
    except FAILURES as error:
        raise _as_unavailable(error) from error


@cache
def _client(url: str, setting: str, timeout_seconds: float | None) -> "redis.Redis | RedisCluster":
    found: redis.Redis | RedisCluster = made(BLOCKING, url, setting, limits(timeout_seconds))
    return found


def limits(timeout_seconds: float | None) -> dict[str, Any]:
    """Return the options of clients that limit the time of a call, and of opening a connection."""
    return {"socket_timeout": timeout_seconds, "socket_connect_timeout": min(10.0, timeout_seconds or 10.0)}


class Classes(NamedTuple):
    """redis-py's classes for threads, or those for an event loop."""

    server: Any
    sentinel: Any
    cluster: Any
    node: Any


def made(classes: Classes, url: str, setting: str, options: dict[str, Any]) -> Any:
    """Return a client of the servers that a URL names. setting: what has the URL, for the BackendSetupError."""
    try:
        parts = urlsplit(url)
        scheme, _, kind = parts.scheme.partition("+")
        if not kind:
            return classes.server.from_url(url, **options)
        servers = Servers.of(parts, kind)
    except ValueError:
        # Without the cause, because that may quote a part of the URL, and so of the password.
        raise BackendSetupError(
            f"a state lives in redis, but {setting} is not a valid Redis URL; write it as {FORMS}"
        ) from None
    secure: dict[str, Any] = {"ssl": True} if scheme == "rediss" else {}
    return servers.client(classes, options | secure)


@dataclass(frozen=True)
class Servers:
    """The contents of a URL with several hosts. kind: sentinel or cluster. path: parts of its path."""

    kind: str
    hosts: list[tuple[str, int]]
    login: dict[str, Any]
    path: list[str]

    @classmethod
    def of(cls, parts: SplitResult, kind: str) -> "Servers":
        """Parse a URL. Raises ValueError if it is not a URL of that kind."""
        login, _, hosts = parts.netloc.rpartition("@")
        user, _, password = login.partition(":")
        named = {"username": unquote(user), "password": unquote(password)}
        path = [part for part in parts.path.split("/") if part]
        if kind not in ("sentinel", "cluster") or (kind == "sentinel" and not path):
            raise ValueError(kind)
        return cls(kind, [_host(host) for host in hosts.split(",")], {k: v for k, v in named.items() if v}, path)

    def client(self, classes: Classes, options: dict[str, Any]) -> Any:
        if self.kind == "sentinel":
            database = int(self.path[1]) if len(self.path) > 1 else 0
            sentinels = classes.sentinel(self.hosts, **options)
            return sentinels.master_for(self.path[0], redis_class=classes.server, db=database, **self.login)
        with unavailable():
            nodes = [classes.node(host, port) for host, port in self.hosts]
            return classes.cluster(startup_nodes=nodes, **options, **self.login)


def _host(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host:
        raise ValueError("no port")
    return host.strip("[]"), int(port)


class _Redis(redis.Redis):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        with _failing():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        return _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)


class _Pipeline(Pipeline):
    def execute(self, raise_on_error: bool = True) -> list[Any]:
        with _failing():
            return list(map(_reply, super().execute(raise_on_error)))


class _Cluster(RedisCluster):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        with _failing():
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def get_node_from_key(self, key: Any, replica: bool = False) -> Any:
        with _failing():
            return super().get_node_from_key(key, replica)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: Any = None, shard_hint: Any = None) -> ClusterPipeline:
        pipe: ClusterPipeline = super().pipeline(transaction, shard_hint)  # type: ignore[no-untyped-call]
        pipe.__class__ = _ClusterPipeline
        return pipe


class _ClusterPipeline(ClusterPipeline):
    def execute(self, raise_on_error: bool = True) -> list[Any]:
        with _failing():
            return list(map(_reply, super().execute(raise_on_error)))


BLOCKING = Classes(_Redis, Sentinel, _Cluster, ClusterNode)


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (NoScriptError, DataError):
        # Not converted, because redis-py answers the first by sending the script, and the second is a caller's mistake.
        raise
    except FAILURES as error:
        raise _as_unavailable(error) from error


def _reply(reply: Any) -> Any:
    """Return a reply of a pipeline, converting Redis errors to ours."""
    is_failure = isinstance(reply, redis.RedisError) and not isinstance(reply, NoScriptError | DataError)
    return _as_unavailable(reply) if is_failure else reply


def _as_unavailable(error: Exception) -> BackendUnavailable:
    # Up to Redis 6 a script reports it as an error of another kind.
    if isinstance(error, redis.OutOfMemoryError) or "OOM command not allowed" in str(error):
        return BackendUnavailable("redis: out of memory (memory in use is over maxmemory); raise that, or free some")
    return BackendUnavailable(f"redis: {type(error).__name__}: {error}")
