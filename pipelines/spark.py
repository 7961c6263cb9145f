"""How the types of keys and measures are called in PostgreSQL, in Spark and in Arrow."""

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from pipelines.connections import MOST_WRITERS
from pipelines.embedded.data_dir import REPOSITORY
from pipelines.embedded.java import java_home
from pipelines.errors import PipelineError, RuntimeSetupError
from state_backends.types import type_of


def spark_type(sql_type: str) -> str:
    return type_of(sql_type).spark


def struct_type(columns: Mapping[str, str]) -> StructType:
    """Return the schema of columns, name to Spark type. Raises PipelineError naming the column whose type is none."""
    schema = StructType()
    for name, kind in columns.items():
        try:
            schema = schema.add(name, _data_type(kind))
        except Exception as error:
            raise PipelineError(f"column {name!r}: {kind!r} is no Spark type, as `bigint` or `string`") from error
    return schema


@cache
def _data_type(kind: str) -> DataType:
    # Spark's own parser, a call into Java each time.
    return DataType.fromDDL(kind)


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    return as_arrow(struct_type(columns))


def as_arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


# How many tasks a step of a batch is spread over, where each of them holds a connection.


def at_most(partitions: int, rows: DataFrame) -> DataFrame:
    """Return the rows in so many partitions or fewer."""
    # Planning is most of the time of a small batch; where there cannot be more there is nothing to plan.
    spark = rows.sparkSession
    most = max(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), spark.sparkContext.defaultParallelism)
    return rows.coalesce(partitions) if most > partitions else rows


# Shipping: bring this project's code to the executors of a cluster, so that no machine needs a checkout of it.
#
# The packages travel as archives, which Spark unpacks into a folder that every Python worker imports from: real
# files, so that code which reads a file beside itself finds it there too, and byte code is kept.


PACKAGES = ("pipelines", "state_backends")
USERS_FILES = (".py", ".zip", ".egg")


def ship(context: SparkContext, files: Iterable[Path] = ()) -> None:
    """Give the executors our packages, and files of the user's: modules, and zips of packages."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-code-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in PACKAGES:
        # What follows the `#` is the name of the folder that it is unpacked into.
        context.addArchive(f"{pack(REPOSITORY / package, folder)}#{package}")
    for file in files:
        context.addPyFile(str(file))


def pack(package: Path, folder: Path) -> Path:
    """Return a new zip in `folder` of what lies in a package, its data files with it, its byte code without."""
    packed = shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return Path(shutil.make_archive(str(packed), "zip", packed))


def users_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files that `SPARK_PYFILES` names, parted by commas.

    Raises RuntimeSetupError for one that is not there, or is neither a module nor a zip.
    """
    files = [Path(name.strip()) for name in environ.get("SPARK_PYFILES", "").split(",") if name.strip()]
    for file in files:
        if file.suffix not in USERS_FILES or not file.is_file():
            raise RuntimeSetupError(
                f"SPARK_PYFILES: {str(file)!r} is no {', '.join(USERS_FILES)} file that is there; "
                "name modules, or zips of packages, parted by commas"
            )
    return files


# One Spark session, set up for micro-batches into a database.


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
