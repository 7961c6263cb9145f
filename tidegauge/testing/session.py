"""The Spark session of tests."""

import os

from pyspark.sql import SparkSession

from tidegauge.pipelines.spark.session import start_session

# Only Java's first compiler, because tests are too short to benefit from the second (see JVM's tiered compilation).
# With it Java reserves only 48 MB for compiled code. Some thirty tests fill that, and Java then drops most of it and
# compiles it again, so more is reserved. The serial garbage collector makes tests take a tenth less CPU.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m"


def spark_session() -> SparkSession:
    """Return the active session, or start one on two cores of this machine."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    return start_session("tests", master="local[2]")
