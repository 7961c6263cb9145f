"""SparkSource: any format that Spark can read as a stream, as the source of a pipeline."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegauge.pipelines.errors import PipelineError, SourceSetupError, failure_reason
from tidegauge.pipelines.sources.any_format import AnyFormat
from tidegauge.pipelines.sources.guarantee import MATRIX, Spout
from tidegauge.pipelines.sources.schemas import declared
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.pipelines.spark.java_classes import java_class

# Formats that need a package, with its Maven coordinates; the parts in braces depend on the release of Spark.
PACKAGES = {
    "avro": "org.apache.spark:spark-avro_{scala}:{spark}",
    "delta": "io.delta:delta-spark_{scala}:VERSION",
    "deltasharing": "io.delta:delta-sharing-spark_{scala}:VERSION",
    "hudi": "org.apache.hudi:hudi-spark{minor}-bundle_{scala}:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{minor}_{scala}:VERSION",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}",
    "mongodb": "org.mongodb.spark:mongo-spark-connector_{scala}:VERSION",
    "pulsar": "io.streamnative.connectors:pulsar-spark-connector_{scala}:VERSION",
}

# Spark's message if no class has the format's name; its words depend on the release and on the format.
NOT_FOUND = re.compile(r"find (the )?data source|DATA_SOURCE_NOT_FOUND", re.IGNORECASE)


class SparkSource(AnyFormat):
    """Rows of a format of Spark's `readStream`: `SparkSource("delta", options={"path": "/lake/orders"})`.

    options: as the format takes them; a table or folder is the option `path`. Errors never show their values.
    schema: the columns, as Spark DDL or a StructType, for formats that must be told (files, for example).
    spout: what the format promises when a batch is replayed: `transactional` if it has the same rows, as for Delta,
    Iceberg and files that are never rewritten; `opaque` if it may have others; `non_transactional` if it cannot be.
    packages: Maven coordinates of the jars that it needs; none if they are on Spark's class path.
    max_bad_share: if a state rejects a larger share of a batch's events (and more than 10), the pipeline stops.
    Raises PipelineError for an unknown spout kind or an invalid schema.
    """

    def __init__(
        self,
        format: str,
        *,
        options: Mapping[str, str | int | bool] | None = None,
        schema: str | StructType | None = None,
        spout: Spout = "opaque",
        packages: Sequence[str] = (),
        max_bad_share: float = 0.5,
    ) -> None:
        kinds = list(dict.fromkeys(kind for kind, _ in MATRIX))
        if not format or spout not in kinds:
            raise PipelineError(
                f"source {format!r}: spout {spout!r}: give the name of a format, and one of {', '.join(kinds)}"
            )
        super().__init__(spout, max_bad_share)
        self.format = format
        self.packages = tuple(packages)
        self._options = {name: str(value) for name, value in (options or {}).items()}
        self._schema = schema
        self._found: StructType | None = None

    @cached_property
    def schema(self) -> StructType:
        if self._schema is not None:
            return declared(self._schema, repr(self.format))
        if self._found is None:
            raise PipelineError(f"{self}: its columns are unknown until Spark has opened it; give it a schema")
        return self._found

    def schema_in(self, spark: SparkSession) -> StructType:
        return self.load(spark).schema

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the stream of rows. Raises SourceSetupError if Spark cannot read it, naming a missing package."""
        reader = spark.readStream.format(self.format).options(**self._options)
        try:
            rows = (reader if self._schema is None else reader.schema(self.schema)).load()
        except Exception as error:
            raise SourceSetupError(self._unreadable(error, spark)) from error
        self._found = rows.schema
        return rows

    def parse(self, batch: DataFrame) -> Parsed:
        return Parsed(batch, tuple(batch.columns))

    def _unreadable(self, error: Exception, spark: SparkSession) -> str:
        if not NOT_FOUND.search(str(error)):
            return f"{self}: cannot be read: {failure_reason(error)}"
        coordinates = _coordinates(self.format, spark) or "the package of the format, as `group:artifact:version`,"
        return (
            f"{self}: Spark has no format of this name; add {coordinates} to `packages=[..]` of the source or to "
            "spark.jars.packages, or register the Python data source before the pipeline starts"
        )

    def __str__(self) -> str:
        return f"source {self.format!r}"


def _coordinates(format: str, spark: SparkSession) -> str | None:
    """Return the package of a well-known format, for this release of Spark and its Scala."""
    found = PACKAGES.get(format.casefold())
    if found is None:
        return None
    scala = ".".join(java_class(spark._jvm, "scala.util.Properties").versionNumberString().split(".")[:2])
    return found.format(scala=scala, spark=spark.version, minor=".".join(spark.version.split(".")[:2]))
