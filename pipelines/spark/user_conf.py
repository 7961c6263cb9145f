"""Spark's settings that a user makes, and those that a user may not change."""

from collections.abc import Mapping

from tidegauge.pipelines.errors import RuntimeSetupError

# Settings that a user may not change, with the reason.
RELIED_ON = {
    "spark.master": "set SPARK_MASTER",
    "spark.app.name": "it is made of the pipelines' names",
    "spark.submit.pyFiles": "set SPARK_PYFILES",
    "spark.sql.shuffle.partitions": "set SPARK_SHUFFLE_PARTITIONS",
    "spark.sql.session.timeZone": "windows and texts of times are in UTC",
    "spark.sql.ansi.enabled": "a value that does not fit its type must be an error, and not null",
    "spark.sql.adaptive.enabled": "the tasks of a batch are the connections that write it, which are counted before",
    "spark.ui.enabled": "use --ui",
    "spark.ui.port": "use --ui PORT",
}


def check_conf(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return Spark settings of a user's. Raises RuntimeSetupError for one that Tidegauge relies on, and for a typo."""
    for name in conf:
        if not name.startswith("spark."):
            raise RuntimeSetupError(f"{name!r} is not a setting of Spark, whose names begin with 'spark.'")
        if name in RELIED_ON:
            raise RuntimeSetupError(f"{name!r} cannot be set, since Tidegauge relies on it: {RELIED_ON[name]}")
    return conf
