"""One Spark session, set up for micro-batches into a database."""

import logging
import os
import sys
from collections.abc import Iterable

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipelines.runtime.errors import RuntimeSetupError
from pipelines.runtime.home import REPOSITORY
from pipelines.runtime.java import java_home
from pipelines.shipping import ship, users_files
from pipelines.writers import MOST_WRITERS

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
    On a cluster the executors get this project's code (see shipping); the Python that runs it, `PYSPARK_PYTHON` or the
    path of this one, must be on every machine, with requirements.txt installed.
    `SPARK_SHUFFLE_PARTITIONS`: into how many tasks a batch is grouped.
    Raises RuntimeSetupError where there is no Java that Spark can run on, or a variable says what cannot be.
    """
    master = master or os.environ.get("SPARK_MASTER") or f"local[{_cores()}]"
    local = is_local(master)
    tasks, files = _tasks(local), users_files()
    _set_surroundings(local)
    builder = SparkSession.builder.master(master).appName(name).config("spark.sql.shuffle.partitions", tasks)
    for setting, value in SETTINGS.items():
        builder = builder.config(setting, value)
    if coordinates := ",".join(sorted(set(packages))):
        builder = builder.config("spark.jars.packages", coordinates)
    session = _started(builder, coordinates)
    if not local:
        ship(session.sparkContext, files)
    session.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return session


def _started(builder: SparkSession.Builder, packages: str) -> SparkSession:
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if not packages:
            raise
        raise RuntimeSetupError(
            f"Spark did not start with the packages {packages}; if its output above says that they were not found, "
            "give the source others by `packages=`, or put their jars on Spark's class path and pass `packages=()`"
        ) from error


def is_local(master: str) -> bool:
    """Tell whether a master is this process itself: its tasks find what it finds."""
    return master == "local" or master.startswith("local[")


def _set_surroundings(local: bool) -> None:
    os.environ["JAVA_HOME"] = java_home()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        # Python workers import this project whatever folder the driver was started in.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))


def _tasks(local: bool) -> int:
    given = os.environ.get("SPARK_SHUFFLE_PARTITIONS", "")
    if given and not (given.isdecimal() and int(given)):
        raise RuntimeSetupError(f"SPARK_SHUFFLE_PARTITIONS: {given!r} is no number of tasks; set it to 1 or more")
    return int(given) if given else _cores() if local else MOST_WRITERS


def _cores() -> int:
    return os.cpu_count() or 2
