"""One Spark session, set up for micro-batches into a database."""

import logging
import os
import sys
from collections.abc import Iterable

from pyspark.sql import SparkSession

from pipelines.runtime.home import REPOSITORY
from pipelines.runtime.java import java_home

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Adaptive execution plans each stage anew, which a small micro-batch waits for (0.19 s against 0.37 s a state,
    # measured), and folds the shuffle into one partition, so that one connection would do all the work.
    "spark.sql.adaptive.enabled": "false",
    # How long an idle query waits before it looks for input again; Spark's own 10 ms lists folders all the time.
    "spark.sql.streaming.pollingDelay": "100ms",
    # One COPY message per Arrow batch; larger ones save calls, smaller ones memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # A task that does not listen must not keep a stop waiting for ever.
    "spark.sql.streaming.stopTimeout": "30s",
}


def start_session(name: str, master: str | None = None, packages: Iterable[str] = ()) -> SparkSession:
    """Return a Spark session on `SPARK_MASTER`, or on this machine's cores.

    packages: Maven coordinates of the jars that its sources need; Spark fetches what it has not got yet.
    Raises RuntimeSetupError where there is no Java that Spark can run on.
    """
    cores = os.cpu_count() or 2
    os.environ["JAVA_HOME"] = java_home()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Python workers import this project whatever folder the driver was started in.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    master = master or os.environ.get("SPARK_MASTER") or f"local[{cores}]"
    if master.startswith("local"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(master).appName(name).config("spark.sql.shuffle.partitions", cores)
    for setting, value in SETTINGS.items():
        builder = builder.config(setting, value)
    if coordinates := ",".join(sorted(set(packages))):
        builder = builder.config("spark.jars.packages", coordinates)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return session
