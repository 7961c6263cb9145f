"""Describes what a measurement depends on besides the code: the machine, its load, and all versions and settings."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from benchmarks.servers import database, redis_client
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.embedded.java import java_home

PACKAGES = {
    "Spark": "pyspark",
    "Django": "django",
    "DRF": "djangorestframework",
    "granian": "granian",
    "psycopg": "psycopg",
    "redis client": "redis",
    "pyarrow": "pyarrow",
}
# Files that may differ from the commit, because they do not affect what is measured.
WRITTEN = (":!docs/benchmarks.*", ":!docs/images/benchmarks")


def machine() -> dict[str, Any]:
    """Return processor, cores, memory in GB, kernel, and the load averages of the last 1, 5 and 15 minutes."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def versions() -> dict[str, str]:
    """Return Tidegauge's commit, the versions of what it runs on, and the servers' durability settings."""
    return {
        "Tidegauge": _commit(),
        "Python": platform.python_version(),
        "Java": _java(),
        **{name: version(package) for name, package in PACKAGES.items()},
        "PostgreSQL": _postgresql(),
        "Redis": _redis(),
    }


def _cpu() -> str:
    models = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return models[0] if models else platform.machine()


def _commit() -> str:
    commit = _git("rev-parse", "--short=10", "HEAD")
    return f"{commit} with changes" if commit and _git("status", "--porcelain", "--", ".", *WRITTEN) else commit


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True)  # noqa: S607
    return done.stdout.strip()


def _java() -> str:
    java = Path(java_home(), "bin", "java")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    return said.splitlines()[-2].strip()


def _postgresql() -> str:
    with database() as conn:
        rows = conn.execute(
            "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name",
            [["server_version", "fsync", "synchronous_commit", "shared_buffers"]],
        ).fetchall()
    return _with_settings(**dict(rows))


def _redis() -> str:
    with redis_client() as client:
        settings = {name: client.config_get(name)[name] for name in ("appendonly", "appendfsync")}
        found = client.info("server")
        # Valkey also reports the version of Redis that it is compatible with.
        version = f"Valkey {found['valkey_version']}" if "valkey_version" in found else found["redis_version"]
        return _with_settings(version, **settings)


def _with_settings(server_version: str, **settings: str) -> str:
    return f"{server_version} ({', '.join(f'{name} {value}' for name, value in settings.items())})"
