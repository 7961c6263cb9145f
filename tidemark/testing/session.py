"""The Spark session of tests."""

import os

from pyspark.sql import SparkSession

from pipelines.spark import start_session


def spark_session() -> SparkSession:
    """Return the active session, or start one on two cores of this machine."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Tests are short: Java's second compiler costs them more than it gives (see JVM's tiered compilation).
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    return start_session("tests", master="local[2]")
