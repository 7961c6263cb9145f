"""Spark for a pipeline: the session, the code that its executors need, partitions, and column types.

The machines of a cluster need no checkout of this project, because its package is sent as an archive. Spark unpacks it
into a folder that every Python worker imports from, so that code finds the package's data files, and byte code is kept.
"""

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tidegauge.pipelines.connections import MOST_WRITERS
from tidegauge.pipelines.embedded.data_dir import PACKAGE, folder_until_exit, project_dir
from tidegauge.pipelines.embedded.java import java_home
from tidegauge.pipelines.errors import PipelineError, RuntimeSetupError
from tidegauge.pipelines.spark.conf import PACKAGES_SETTING, SETTINGS, local_settings
from tidegauge.pipelines.spark.java_classes import keep_classes
from tidegauge.pipelines.spark.jvm_log import start_java
from tidegauge.pipelines.spark.user_conf import check_conf
from tidegauge.pipelines.spark.versions import check_version, spark_version
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.spec.types import type_of

# The executors of a cluster get our package without NOT_SHIPPED, and the user's files with one of USER_SUFFIXES.
NOT_SHIPPED = ("__pycache__", "webapp")
USER_SUFFIXES = (".py", ".zip", ".egg")

logger = logging.getLogger(__name__)


def start_session(
    name: str,
    master: str | None = None,
    packages: Iterable[str] = (),
    *,
    conf: Mapping[str, str] | None = None,
    ui_port: int | None = None,
    modules: Iterable[str] = (),
) -> SparkSession:
    """Return a Spark session on the master of `spark-submit`, on `SPARK_MASTER`, or on the cores of this machine.

    packages: Maven coordinates of the jars that the sources need; Spark downloads those it does not have.
    conf: the user's settings (see check_conf). ui_port: the port of Spark's web pages; None: they are off.
    modules: those of the user's pipelines. On a cluster the executors get the modules' packages from the working
    directory, this project's code, and the files that `SPARK_PYFILES` names. Their Python, `PYSPARK_PYTHON` or the path
    of this process's, must exist on every machine, with requirements.txt installed.
    `SPARK_SHUFFLE_PARTITIONS`: the number of tasks that group a batch.
    Raises RuntimeSetupError if no suitable Java is found, if a variable or setting is invalid, or if Spark does not
    start with the packages.
    """
    check_version()
    conf = check_conf(conf or {})
    master = master or _submitted_to() or os.environ.get("SPARK_MASTER") or f"local[{_cores()}]"
    local = is_local(master)
    partitions, files = _shuffle_partitions(local), user_files()
    _set_environment(local)
    coordinates = ",".join(sorted({*packages, *filter(None, conf.get(PACKAGES_SETTING, "").split(","))}))
    settings = {"spark.master": master, "spark.app.name": name, "spark.sql.shuffle.partitions": str(partitions)}
    settings |= {**SETTINGS, **(local_settings() if local else {}), **conf}
    settings |= {PACKAGES_SETTING: coordinates} if coordinates else {}
    settings |= {"spark.ui.enabled": "true", "spark.ui.port": str(ui_port)} if ui_port is not None else {}
    session = _create(settings, coordinates)
    keep_classes(session.sparkContext._jvm)
    if ui_port is not None:
        logger.info("Spark's pages are at %s", session.sparkContext.uiWebUrl)
    if not local:
        ship(session.sparkContext, [*files, *project_code(modules)])
    session.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return session


def has_ended(session: SparkSession) -> bool:
    """Return whether Spark was stopped, or its Java process is ending or gone."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except (AttributeError, Py4JError, OSError):
        return True


def is_local(master: str) -> bool:
    """Return whether a master runs its tasks on this machine, with this process's files."""
    return master == "local" or master.startswith("local[")


def _submitted_to() -> str | None:
    """Return the master given to `spark-submit`, which has already started Java with its own settings; else None."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    SparkContext._ensure_initialized()
    return SparkConf().get("spark.master")


def _shuffle_partitions(local: bool) -> int:
    given = os.environ.get("SPARK_SHUFFLE_PARTITIONS", "")
    if given and not (given.isdecimal() and int(given)):
        raise RuntimeSetupError(f"SPARK_SHUFFLE_PARTITIONS: {given!r} is not a number of tasks; set it to 1 or more")
    return int(given) if given else _cores() if local else MOST_WRITERS


def _cores() -> int:
    return os.cpu_count() or 2


def _set_environment(local: bool) -> None:
    os.environ["JAVA_HOME"] = java_home()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        # So that Python workers can import what the driver imports: this checkout, and the working folder.
        paths = dict.fromkeys([str(project_dir()), str(Path.cwd()), os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _create(settings: dict[str, str], packages: str) -> SparkSession:
    try:
        start_java(SparkConf().setAll(list(settings.items())))
        with _own_interrupt():
            return SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except PySparkRuntimeError as error:
        if not packages:
            raise
        raise RuntimeSetupError(
            f"Spark did not start with the packages {packages}; if the log above says that they were not found, pass "
            "other ones to the source with `packages=`, or put the jars on Spark's class path and pass `packages=()`"
        ) from error


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep the program's own handler for Ctrl-C, because Spark's cancels all jobs, and so the batch that is running."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if handler is not signal.default_int_handler and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def ship(context: SparkContext, files: Iterable[Path] = ()) -> None:
    """Send our package and the user's code to the executors: modules, zips of packages, and packages."""
    folder = folder_until_exit("tidegauge-code-")
    for path in [PACKAGE, *files]:
        if path.is_dir():
            # What follows the `#` is the name of the folder that Spark unpacks the archive into.
            context.addArchive(f"{pack(path, folder)}#{path.name}")
        else:
            context.addPyFile(str(path))


def project_code(modules: Iterable[str], folder: Path | None = None) -> list[Path]:
    """Return the top-level packages and modules in the working directory that the given modules belong to."""
    folder = folder or Path.cwd()
    names = sorted({module.partition(".")[0] for module in modules} - {PACKAGE.name})
    found = [path for name in names for path in (folder / name, folder / f"{name}.py")]
    return [path for path in found if path.is_dir() or path.is_file()]


def pack(package: Path, folder: Path) -> Path:
    """Return a new zip in `folder` with a package's code and data files, without its byte code."""
    unwanted = NOT_SHIPPED if package == PACKAGE else NOT_SHIPPED[:1]
    packed = shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns(*unwanted))
    return Path(shutil.make_archive(str(packed), "zip", packed))


def user_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the files that `SPARK_PYFILES` names, separated by commas.

    Raises RuntimeSetupError for a file that does not exist or is neither a module nor a zip of packages.
    """
    files = [Path(name.strip()) for name in environ.get("SPARK_PYFILES", "").split(",") if name.strip()]
    for file in files:
        if file.suffix not in USER_SUFFIXES or not file.is_file():
            raise RuntimeSetupError(
                f"SPARK_PYFILES: {str(file)!r} is not an existing {', '.join(USER_SUFFIXES)} file; "
                "name modules, or zips of packages, separated by commas"
            )
    return files


def at_most(partitions: int, rows: DataFrame) -> DataFrame:
    """Return the rows in at most `partitions` partitions, because each of their tasks will hold a connection."""
    # No step is added if there cannot be more partitions, because planning takes most of the time of a small batch.
    return rows.coalesce(partitions) if most_tasks(rows.sparkSession) > partitions else rows


def in_session(frame: DataFrame, session: SparkSession) -> DataFrame:
    """Return the rows of a frame as a frame of another session, whose plans do not include how they are computed.

    The rows are still computed with the settings of their own session.
    """
    rows = frame._jdf.queryExecution().toRdd()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False), session)


def plan_nodes(frame: DataFrame) -> Iterator[Any]:
    """Yield the nodes of a frame's analysed plan, as Spark's Java objects, from the top."""
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(place) for place in range(children.size())]


def partitions_of(frame: DataFrame) -> int:
    """Return how many partitions a frame has; of rows that Spark already has, as those of a batch, without a plan."""
    plan = frame._jdf.queryExecution().analyzed()
    return int(plan.rdd().getNumPartitions()) if plan.nodeName() == "LogicalRDD" else frame.rdd.getNumPartitions()


def most_tasks(spark: SparkSession) -> int:
    """Return the most tasks of a stage that may run at the same time."""
    return max(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), spark.sparkContext.defaultParallelism)


def spark_type(sql_type: str) -> str:
    """Return the Spark type of a PostgreSQL type."""
    return type_of(sql_type).spark


def struct_type(columns: Mapping[str, str]) -> StructType:
    """Return the schema of columns, name to Spark type. Raises PipelineError naming a column with an unknown type."""
    schema = StructType()
    for name, kind in columns.items():
        try:
            schema = schema.add(name, data_type(kind))
        except Exception as error:
            raise PipelineError(f"column {name!r}: {kind!r} is not a Spark type such as `bigint`") from error
    return schema


@cache
def data_type(kind: str) -> DataType:
    """Return the Spark type of that name."""
    # Cached, because each use of Spark's parser is a call into Java.
    return DataType.fromDDL(kind)


def sql_of_type(kind: DataType) -> str:
    """Return a type as Spark SQL reads it, with every name quoted."""
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{quoted(field.name)}: {sql_of_type(field.dataType)}' for field in kind)}>"
    if isinstance(kind, ArrayType):
        return f"array<{sql_of_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{sql_of_type(kind.keyType)}, {sql_of_type(kind.valueType)}>"
    return kind.simpleString()


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns, name to Spark type."""
    return as_arrow(struct_type(columns))


def as_arrow(schema: StructType) -> pa.Schema:
    # No option before Spark 4.2, because it always uses UTC there.
    options: dict[str, Any] = {"timezone": "UTC"} if spark_version() >= (4, 2) else {}
    return to_arrow_schema(schema, **options)
