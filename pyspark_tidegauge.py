"""Makes `spark.read.format("tidegauge")` work: Spark asks modules named `pyspark_*` for data sources.

An ImportError is ignored here, because it would end the search for all other Python data sources. Calling
`tidegauge.register(spark)` reports what is missing.
"""

from contextlib import suppress

with suppress(ImportError):
    from tidegauge.pipelines.spark.state_source import TidegaugeDataSource as DefaultSource  # noqa: F401
