"""The options of every Java that tests start, and a file from which it maps Spark's classes (class data sharing).

Without the file Java loads and checks the classes at each start: with a first batch that takes 16 s of CPU instead of
8 s, and dozens of tests of `make check` start a driver of their own. `make rest` makes the file once, by running this
module as a program, and keeps it beside the packages; Java ignores a file that does not fit.
"""

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"


def set_java_options() -> None:
    """Set the environment of every Java that is started from here on."""
    # As tidegauge/testing/session.py has them, which says why. Here they are for drivers that tests start as processes.
    options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m"
    os.environ.setdefault("JAVA_TOOL_OPTIONS", options)
    # Spark's start script passes these to the driver's Java alone. With room for new objects it collects garbage some
    # hundred times less in the session of all tests; to another class path the file is of no use.
    # The first `lower` otherwise computes the title case of every character of Unicode, which takes 1.2 s.
    without_icu = "-Dspark.sql.icu.caseMappings.enabled=false"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(["-Xms1g", "-Xmn512m", without_icu, *archived()]))


def archived() -> list[str]:
    """Return the option with which a Java of Spark's uses the file; none if there is no file."""
    return [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.is_file() else []


def for_another_environment() -> dict[str, str]:
    """Return variables with which a driver of another environment, with the same Spark, uses the file, too."""
    from pyspark.find_spark_home import _find_spark_home

    # The file fits the jars of one folder.
    return {"SPARK_HOME": _find_spark_home(), "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"]}


def make_archive() -> None:
    """Run a small pipeline, and wait until Java has ended, which writes the file."""
    from pyspark import SparkContext

    from tidegauge.pipelines.driver.driver import Driver, RunOptions
    from tidegauge.pipelines.embedded.temporary import server_url, temporary_database
    from tidegauge.pipelines.jobs.word_count import word_count
    from tidegauge.testing.session import spark_session

    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={ARCHIVE}"
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
    make_archive()
