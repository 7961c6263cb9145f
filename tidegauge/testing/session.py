"""The Spark session of tests."""

import os

from pyspark.sql import SparkSession

from tidegauge.pipelines.spark.session import start_session

# Tests are short: Java's second compiler costs them more than it gives (see JVM's tiered compilation). Without it Java
# reserves 48 MB for compiled code, which some thirty tests fill: it then drops most of that and compiles it again. With
# one thread that collects garbage instead of several beside the program, tests take a tenth less CPU.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m"


def spark_session() -> SparkSession:
    """Return the active session, or start one on two cores of this machine."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    return start_session("tests", master="local[2]")
