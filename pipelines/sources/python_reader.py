"""Turns readers that are written in Python into DataFrames, and imports Spark's classes for them.

Spark has readers that limit a batch since 4.2. On an older Spark their classes are empty here, so that the modules of
the sources can be imported; those sources refuse to load.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidegauge.pipelines.spark.versions import LIMITED_READERS, spark_version

if TYPE_CHECKING or spark_version() >= LIMITED_READERS:
    from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:

    class ReadLimit: ...

    class ReadMaxRows: ...

    class SupportsTriggerAvailableNow: ...


__all__ = [
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "python_batch",
    "python_stream",
]


def python_stream(
    spark: SparkSession,
    name: str,
    columns: StructType,
    reader: Callable[[], DataSourceStreamReader],
    *,
    waits: bool = False,
) -> DataFrame:
    """Return the streaming DataFrame of a reader written in Python; `name` is what plans call it.

    waits: whether every batch that is planned from now on is empty.
    The reader's settings travel inside the pickled class, so workers need nothing in their environment. They are not
    options of the data source, because plans print those, and a URL contains a password.
    """

    class PythonStream(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
            made = reader()
            if waits:
                made.latestOffset = lambda start, limit: start  # type: ignore[method-assign]
            return made

    # A second source of that name replaces the first, but frames that are already loaded keep theirs.
    spark.dataSource.register(PythonStream)
    return spark.readStream.format(name).load()


def python_batch(
    spark: SparkSession,
    name: str,
    columns: StructType,
    reader: Callable[[], DataSourceStreamReader],
    start: Any,
    end: Any,
) -> DataFrame:
    """Return what the reader of `python_stream` reads between two offsets, as a batch."""

    class PythonBatch(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return columns

        def reader(self, schema: StructType) -> DataSourceReader:
            return _Between(reader(), start, end)

    spark.dataSource.register(PythonBatch)
    return spark.read.format(name).load()


class _Between(DataSourceReader):
    def __init__(self, reader: DataSourceStreamReader, start: Any, end: Any) -> None:
        self._reader, self._start, self._end = reader, start, end

    def partitions(self) -> Sequence[InputPartition]:
        return self._reader.partitions(self._start, self._end)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        # Spark reads a partition None if there are no partitions.
        return iter(()) if partition is None else self._reader.read(partition)
