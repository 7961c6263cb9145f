"""Registers the data source "tidegauge" with a Spark session, for filters or if Spark does not find it by itself."""

from typing import TYPE_CHECKING

import pyspark

from tidegauge.pipelines.errors import RuntimeSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first version with data sources in Python.
FIRST = (4, 0)

# Whether Spark passes filters to data sources in Python. Available since 4.1, off by default.
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: "SparkSession") -> None:
    """Register the data source "tidegauge", so that `spark.read.format("tidegauge")` reads states.

    Spark 4 finds the installed package by itself. Call this if it does not. Call it with `PUSHDOWN` on as well, so that
    filters narrow the keys that are read. Raises RuntimeSetupError below Spark 4.0.
    """
    check_version(pyspark.__version__)
    from tidegauge.pipelines.spark.state_source import TidegaugeDataSource

    source = TidegaugeDataSource
    if str(spark.conf.get(PUSHDOWN, "false")).lower() == "true":
        from tidegauge.pipelines.spark.state_filters import PushingDataSource

        source = PushingDataSource
    spark.dataSource.register(source)


def check_version(version: str) -> None:
    """Raise RuntimeSetupError if Spark has no data sources in Python. version: of PySpark, such as 4.0.1."""
    if tuple(map(int, version.split(".")[:2])) < FIRST:
        raise RuntimeSetupError(
            f"Spark {version}: format 'tidegauge' is a data source in Python, which needs Spark 4.0 or later; read the "
            "state as Arrow batches or pandas with state_reader(conn, spec).export() instead "
            "(docs/read-from-spark.md)"
        )
