"""The options of every Java that tests start, and a file from which it maps Spark's classes (class data sharing).

Without the file Java loads and checks the classes at each start: with a first batch that takes 16 s of CPU instead of
8 s, and dozens of tests start a driver of their own. The file is made once per Java and PySpark and kept in the user's
cache folder; Java ignores one that does not fit. Run as a program, this module runs the driver whose classes it holds.
"""

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DUMP_SECONDS = 600

# As tidemark/testing/session.py has them, which says why. Here they are for the drivers that tests start as processes.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m"


def set_java_options() -> None:
    """Set the environment of every Java that is started from here on."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    file = archive()
    if file.is_file():
        # Spark's start script passes it to the driver's Java alone: to another class path the file is of no use.
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={file}"


def dump_class_data() -> None:
    """Make the file unless it is there. Without one the tests run slower, so a failure is no error."""
    file = archive()
    file.parent.mkdir(parents=True, exist_ok=True)
    # Of several processes one makes it, and the others wait for it.
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.is_file():
            new = file.with_suffix(f".{os.getpid()}")
            environ = os.environ | {"SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={new}"}
            program = [sys.executable, "-m", "tests.java_options"]
            subprocess.run(program, cwd=REPOSITORY, env=environ, capture_output=True, timeout=DUMP_SECONDS, check=False)
            if new.is_file():
                new.replace(file)


def archive() -> Path:
    """Return the path of the file for this Java and PySpark."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.realpath(Path(home, "bin", "java") if home else shutil.which("java") or "")
    # Found without importing PySpark, which most tests do without.
    spark = importlib.metadata.distribution("pyspark")
    known = hashlib.sha256(f"{java} {spark.locate_file('pyspark')} {spark.version}".encode())
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tidemark-tests" / f"spark-{known.hexdigest()[:16]}.jsa"


def _run_driver() -> None:
    """Run a small pipeline, and wait until Java has ended, which writes the file."""
    from pyspark import SparkContext

    from pipelines.driver import Driver, RunOptions
    from pipelines.embedded.temporary import server_url, temporary_database
    from pipelines.jobs.word_count import word_count
    from tidemark.testing.session import spark_session

    with temporary_database(server_url()) as dsn, tempfile.TemporaryDirectory() as name:
        folder = Path(name, "input")
        folder.mkdir()
        (folder / "1.txt").write_text("dog cat dog\n")
        spark = spark_session()
        Driver(word_count(folder), spark, dsn, RunOptions(Path(name, "checkpoint"), once=True)).run()
        spark.stop()
        gateway = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    _run_driver()
