"""Checks the Spark settings of a user, some of which may not be changed."""

from collections.abc import Mapping

from tidegauge.pipelines.errors import RuntimeSetupError

# Settings that a user may not change, with the reason.
RELIED_ON = {
    "spark.master": "set SPARK_MASTER",
    "spark.app.name": "it is composed of the pipelines' names",
    "spark.submit.pyFiles": "set SPARK_PYFILES",
    "spark.sql.shuffle.partitions": "set SPARK_SHUFFLE_PARTITIONS",
    "spark.sql.session.timeZone": "windows and times in text are in UTC",
    "spark.sql.ansi.enabled": "a value that does not fit its type must be an error, and not null",
    "spark.sql.adaptive.enabled": "each task of a batch holds a connection, so their number must be known beforehand",
    "spark.ui.enabled": "use --ui",
    "spark.ui.port": "use --ui PORT",
}


def check_conf(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return the user's settings. Raises RuntimeSetupError if Tidegauge relies on one, or a name is not Spark's."""
    for name in conf:
        if not name.startswith("spark."):
            raise RuntimeSetupError(f"{name!r} is not a setting of Spark, whose names begin with 'spark.'")
        if name in RELIED_ON:
            raise RuntimeSetupError(f"{name!r} cannot be set, because Tidegauge relies on it: {RELIED_ON[name]}")
    return conf
