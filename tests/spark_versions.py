"""Runs the tests of streams on each version of Spark: `make test-versions`.

Each version gets a virtual environment with its PySpark, which takes everything else from the one that runs this. One
line is printed per version, and the exit code is 1 if a test has failed on one of them.
"""

import argparse
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tidegauge.pipelines.embedded.data_dir import REPOSITORY

FOLDER = REPOSITORY / ".venv-spark"

# The newest patch of each minor version of the range in pipelines/spark/versions.py.
VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")

# What shows a version: batches and replays, checkpoints, sources, operators, jobs, types.
CORE = (
    "tests/pipelines/spark/test_session.py",
    "tests/pipelines/spark/test_versions.py",
    "tests/pipelines/test_replays.py",
    "tests/pipelines/checkpoint/test_files.py",
    "tests/pipelines/repair/test_recovery.py",
    "tests/pipelines/driver/test_application_sink.py",
    "tests/pipelines/declare/test_event_time.py",
    "tests/pipelines/declare/test_windows.py",
    "tests/pipelines/test_sketches.py",
    "tests/pipelines/batch/test_misfits.py",
    "tests/pipelines/jobs",
    "tests/pipelines/operators",
    "tests/pipelines/verbs",
    "tests/pipelines/sources/test_exact.py",
    "tests/pipelines/sources/files/test_formats.py",
    "tests/pipelines/sources/redis/test_streams.py",
    "tests/pipelines/sources/postgres/test_changes.py",
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make test-versions", description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION", help=f"default: {VERSIONS}")
    parser.add_argument("--all", action="store_true", help="all tests of streams, which takes half an hour a version")
    parser.add_argument("--tests", nargs="+", metavar="TEST", help="these tests")
    given = parser.parse_args(arguments)
    tests = given.tests or (["tests/pipelines"] if given.all else CORE)
    failed = [version for version in given.versions if not _passes(version, tests)]
    return 1 if failed else 0


def _passes(version: str, tests: list[str] | tuple[str, ...]) -> bool:
    log = FOLDER / f"{version}.log"
    python = environment(version)
    with log.open("w") as output:
        run = [python, "-m", "pytest", "--color=no", "-p", "no:cacheprovider", *tests]
        code = subprocess.run(run, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT).returncode
    # The last line is pytest's own summary, with how many passed and the time.
    summary = log.read_text().rstrip().rpartition("\n")[2].strip("= ")
    print(f"Spark {version}: {summary}" + (f"; see {log.relative_to(REPOSITORY)}" if code else ""), flush=True)
    return code == 0


def environment(version: str) -> Path:
    """Return the Python of a version's environment, which is made if there is none."""
    folder = FOLDER / version
    python = folder / "bin" / "python"
    made = folder / "made.stamp"
    if not made.exists():
        venv.create(folder, clear=True, with_pip=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"pyspark=={version}"], check=True)
        own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        # After its own packages on the path, so that this PySpark hides the other one.
        (own / "tidegauge.pth").write_text(sysconfig.get_path("purelib") + "\n")
        made.touch()
    return python


if __name__ == "__main__":
    sys.exit(main())
