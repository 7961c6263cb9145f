"""Settings, versions and disk of this machine."""

import importlib.metadata
import os
import platform
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from tidegauge.pipelines.embedded.data_dir import data_dir
from tidegauge.pipelines.embedded.java import java_home
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.webapp.commands.management.doctor.finding import ERROR, OK, WARNING, Finding
from tidegauge.webapp.commands.management.version import version
from tidegauge.webapp.core.writing import size as bytes_as_text

LEAST_FREE_BYTES = 1_000_000_000
LEAST_FREE_SHARE = 0.05
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
    message = (
        f"{bytes_as_text(disk.free)} of {bytes_as_text(disk.total)} are free for the data folder {str(data_dir())!r}"
    )
    full = disk.free < LEAST_FREE_BYTES
    if full or disk.free < disk.total * LEAST_FREE_SHARE:
        remedy = "make room, or set TIDEGAUGE_HOME to a folder on another disk"
        yield Finding("disk", ERROR if full else WARNING, message, remedy)
    else:
        yield Finding("disk", OK, message)


def _version(name: str) -> str:
    if name == "tidegauge":
        return version()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
