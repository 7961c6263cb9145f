"""Given: the source of a pipeline whose rows come from an application, batch by batch, from its own query.

The application's query may read any number of sources. What its checkpoint says about each is stored with every batch.
"""

from functools import cached_property
from typing import NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.any_format import AnyFormat
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.schemas import declared
from tidegauge.pipelines.sources.source import Parsed
from tidegauge.state_backends.aggregators.column import quoted


class Given(AnyFormat):
    """The rows of the DataFrame that `tidegauge.sink` is given.

    schema: the columns that the pipeline reads, as Spark DDL or a StructType; others of the DataFrame are ignored.
    None: all columns, as they are. spout: what the application's query promises when a batch is replayed.
    max_bad_share: if a state rejects a larger share of a batch's events (and more than 10), the batch fails.
    """

    is_given = True

    def __init__(self, schema: str | StructType | None, spout: Spout, max_bad_share: float = 0.5) -> None:
        super().__init__(spout, max_bad_share)
        self._schema = schema

    @cached_property
    def schema(self) -> StructType:
        if self._schema is None:
            self.refuse()
        return declared(self._schema, str(self))

    def load(self, spark: SparkSession) -> DataFrame:
        self.refuse()

    def parse(self, batch: DataFrame) -> Parsed:
        self.refuse()

    def parse_given(self, batch: DataFrame) -> Parsed:
        """Return the rows with the columns of the schema. Raises PipelineError if one is missing or of another type."""
        if self._schema is None:
            return Parsed(batch, tuple(batch.columns))
        self._check(batch.schema)
        return Parsed(batch.selectExpr(*map(quoted, self.schema.names)), tuple(self.schema.names))

    def _check(self, found: StructType) -> None:
        types = {field.name: field.dataType for field in found}
        for field in self.schema:
            if types.get(field.name) != field.dataType:
                is_now = types[field.name].simpleString() if field.name in types else "missing"
                raise PipelineError(
                    f"{self}: column {field.name!r} is {is_now} in the DataFrame and {field.dataType.simpleString()} "
                    f"in the stream's schema; select or cast it (the DataFrame has {found.simpleString()[:200]})"
                )

    def refuse(self) -> NoReturn:
        """Raise PipelineError, because a driver cannot read the rows."""
        raise PipelineError(
            f"{self}: are given by an application, so no driver can read them; feed the pipeline from the application "
            "with `foreachBatch(tidegauge.sink(pipeline))`, or begin its streams with Stream.read"
        )

    def __str__(self) -> str:
        return "given rows"
