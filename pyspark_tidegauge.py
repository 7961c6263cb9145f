"""Spark asks modules named `pyspark_*` for data sources: with this one, `spark.read.format("tidegauge")` finds ours.

An error here would end the search for every other data source of Python, so what is missing is left to
`tidegauge.register(spark)` to say.
"""

from contextlib import suppress

with suppress(ImportError):
    from tidegauge.pipelines.spark.state_source import TidegaugeDataSource as DefaultSource  # noqa: F401
