"""Programs run as a user's shell would, with nothing of the tests around them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# What a user's shell has and an installation may not rely on.
OF_THE_TESTS = re.compile("PYTHON|TIDEGAUGE_|SPARK_|DJANGO_|DATABASE_URL|REDIS_URL|JAVA_HOME|VIRTUAL_ENV")


def users_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not OF_THE_TESTS.match(name)}


def run(*words: str | Path, cwd: Path, check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        list(map(str, words)), cwd=cwd, env=users_environ() | environ, capture_output=True, text=True, check=False
    )
    assert not check or ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def pip(*words: str | Path, cwd: Path) -> None:
    """Run pip; without a way to packages the test is skipped, but not in CI."""
    ran = run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, cwd=cwd, check=False)
    if ran.returncode and "connection broken by" in ran.stdout + ran.stderr and not os.environ.get("CI"):
        pytest.skip("no wheel for the tests: pip cannot reach the packages")
    assert ran.returncode == 0, ran.stdout + ran.stderr
