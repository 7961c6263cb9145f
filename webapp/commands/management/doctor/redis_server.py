"""The Redis servers that the environment names: whether they drop keys, and what survives a crash.

What a driver finds at its start about the server of a state is stored with the state, for every kind of address.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import redis

from tidegauge.webapp.commands.management.doctor.finding import ERROR, OK, WARNING, Finding
from tidegauge.webapp.core.writing import size as bytes_as_text

MOST_USED_MEMORY = 0.9
TIMEOUT_SECONDS = 5.0


def check_redis(url: str, variable: str, *, holds_states: bool) -> Iterator[Finding]:
    """Check the server of an address. holds_states: its keys must survive, not only be there for a while."""
    if "+" in urlsplit(url).scheme:
        yield Finding("redis", OK, f"{variable} names Sentinels or a cluster, which drivers check at their start")
        return
    try:
        with redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
        ) as client:
            info: dict[str, Any] = client.info()
    except ValueError:  # which may quote a part of the password
        yield Finding("redis", ERROR, f"{variable} is not a valid URL", "write it as redis://:password@host:6379/0")
        return
    except redis.RedisError as error:
        yield Finding("redis", ERROR, f"{variable} does not answer: {error}", f'`redis-cli -u "${variable}" ping`')
        return
    yield Finding(
        "redis", OK,
        f"{variable}: {info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}, "
        f"{bytes_as_text(info['used_memory'])}",
    )  # fmt: skip
    policy, limit = info.get("maxmemory_policy", "noeviction"), info.get("maxmemory", 0)
    what = "rows of states" if holds_states else "tasks that wait for a worker"
    command = f'redis-cli -u "${variable}" CONFIG SET'
    if limit and policy.startswith("allkeys"):
        yield Finding(
            "redis", ERROR, f"{variable}: maxmemory-policy {policy} lets it drop {what} when it is full",
            f"`{command} maxmemory-policy noeviction`, and the same in its configuration file",
        )  # fmt: skip
    if limit and info["used_memory"] > limit * MOST_USED_MEMORY:
        used = f"{bytes_as_text(info['used_memory'])} of maxmemory {bytes_as_text(limit)}"
        yield Finding(
            "redis", WARNING, f"{variable}: {used} are used",
            f"give it more: `{command} maxmemory {limit * 2}`",
        )  # fmt: skip
    if holds_states and not info.get("aof_enabled"):
        yield Finding(
            "redis", WARNING, f"{variable}: no append-only file, so a crash loses what came after its last snapshot",
            f"`{command} appendonly yes`, and the same in its configuration file",
        )  # fmt: skip
    for name in ("rdb_last_bgsave_status", "aof_last_write_status"):
        if info.get(name, "ok") != "ok":
            yield Finding(
                "redis", ERROR, f"{variable}: it cannot write its file ({name} is {info[name]})",
                "make room on its disk, and read its log",
            )  # fmt: skip
