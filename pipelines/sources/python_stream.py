"""How Spark learns of a source that is written in Python, and how its settings reach the workers that read it.

They travel inside the pickled class, as a task's own settings do, so workers need nothing in their environment. A data
source's options would be simpler, but plans print those, and a URL holds a password.
"""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType


def python_stream(
    spark: SparkSession, name: str, columns: StructType, reader: Callable[[], DataSourceStreamReader]
) -> DataFrame:
    """Return the streaming DataFrame of a reader; `name` is what plans call it."""

    class PythonStream(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return columns

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
            return reader()

    # A second source of that name takes the place of the first; frames that are loaded already keep theirs.
    spark.dataSource.register(PythonStream)
    return spark.readStream.format(name).load()
