"""Settings, versions and disk of this machine, and the Redis servers that it names."""

import importlib.metadata
import os
import platform
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.embedded.java import java_home
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.webapp.commands.management.doctor.finding import ERROR, OK, WARNING, Finding, megabytes

LEAST_FREE_BYTES = 1_000_000_000
LEAST_FREE_SHARE = 0.05
MOST_USED_MEMORY = 0.9
TIMEOUT_SECONDS = 5.0
SECRETS = ("secret_key", "postgres.password", "redis.password", "demo.json")


def check_settings() -> Iterator[Finding]:
    from tidegauge.webapp.core.checks import https

    if settings.DEBUG:
        yield Finding(
            "settings", ERROR, "DEBUG is on: errors show settings and code to everybody",
            "remove DEBUG from the environment and from .env, and restart web and events",
        )  # fmt: skip
    for found in https():
        yield Finding("settings", WARNING, f"{found.msg} ({found.id})", found.hint or "")
    if not os.environ.get("SECRET_KEY"):
        file = data_dir() / "secret_key"
        yield Finding(
            "settings", WARNING if https() or settings.HTTPS else OK,
            f"SECRET_KEY is not set, so the one in {str(file)!r} is used, which other machines do not have",
            "set SECRET_KEY for web, events and worker: `openssl rand -hex 32`" if https() or settings.HTTPS else "",
        )  # fmt: skip
    for file in [Path(".env"), *(data_dir() / name for name in SECRETS)]:
        if file.exists() and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            yield Finding(
                "settings", WARNING, f"{str(file)!r} has secrets and can be read by others", f"`chmod 600 {file}`"
            )


def check_versions() -> Iterator[Finding]:
    names = ("tidegauge", "django", "celery", "pyspark")
    found = {name: version for name in names if (version := _version(name))}
    shown = ", ".join(f"{name} {version}" for name, version in found.items())
    yield Finding("versions", OK, f"Python {platform.python_version()}, {shown}")
    if "pyspark" not in found:
        return
    from tidegauge.pipelines.spark.versions import check_version

    try:
        check_version()
        yield Finding("versions", OK, f"Java in {java_home()}")
    except RuntimeSetupError as error:
        message, _, remedy = str(error).rpartition("; ")
        yield Finding("versions", ERROR, message, remedy)


def check_disk() -> Iterator[Finding]:
    disk = shutil.disk_usage(data_dir())
    message = f"{megabytes(disk.free)} of {megabytes(disk.total)} are free for the data folder {str(data_dir())!r}"
    full = disk.free < LEAST_FREE_BYTES
    if full or disk.free < disk.total * LEAST_FREE_SHARE:
        remedy = "make room, or set TIDEGAUGE_HOME to a folder on another disk"
        yield Finding("disk", ERROR if full else WARNING, message, remedy)
    else:
        yield Finding("disk", OK, message)


def check_redis(url: str, variable: str, *, holds_states: bool) -> Iterator[Finding]:
    """Check the server of an address. holds_states: its keys must survive, not only be there for a while."""
    import redis

    try:
        with redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
        ) as client:
            info: dict[str, Any] = client.info()
    except (redis.RedisError, ValueError) as error:
        yield Finding("redis", ERROR, f"{variable} does not answer: {error}", f'`redis-cli -u "${variable}" ping`')
        return
    yield Finding(
        "redis", OK,
        f"{variable}: {info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}, "
        f"{megabytes(info['used_memory'])}",
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
        yield Finding(
            "redis", WARNING, f"{variable}: {megabytes(info['used_memory'])} of maxmemory {megabytes(limit)} are used",
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


def _version(name: str) -> str:
    if name == "tidegauge":
        import tidegauge

        return tidegauge.__version__
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
