"""Spark's settings: those that Tidemark makes, and those that a user may not change."""

from collections.abc import Mapping

from pipelines.errors import RuntimeSetupError

CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing"  # Spark's package

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Adaptive execution plans each stage again, which a small micro-batch waits for (0.37 s a state instead of 0.19 s,
    # measured), and combines the shuffle into one partition, so that one connection would do all the work.
    "spark.sql.adaptive.enabled": "false",
    # How long an idle query waits before it checks for input; Spark's default of 10 ms lists folders all the time.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Spark's default asks Hadoop's other file API, which without Hadoop's native library starts some 50 processes per
    # trigger (`chmod`, `readlink`): 0.08 s of 0.13. On a local disk both write a file beside and rename it.
    "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINT_FILES}.FileSystemBasedCheckpointFileManager",
    # Spark compiles some four classes per state and forgets all but the last 100 by default: a pipeline of 100 states
    # compiled them for every batch, which took a quarter of Java's processor time.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Rows of an Arrow batch, each sent as one COPY message: more rows save calls, fewer save memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # A task that does not react must not delay a stop without limit.
    "spark.sql.streaming.stopTimeout": "30s",
}

# Settings that a user may not change, with the reason.
RELIED_ON = {
    "spark.master": "set SPARK_MASTER",
    "spark.app.name": "it is made of the pipelines' names",
    "spark.submit.pyFiles": "set SPARK_PYFILES",
    "spark.sql.shuffle.partitions": "set SPARK_SHUFFLE_PARTITIONS",
    "spark.sql.session.timeZone": "windows and texts of times are in UTC",
    "spark.sql.ansi.enabled": "a value that does not fit its type must be an error, and not null",
    "spark.sql.adaptive.enabled": "the tasks of a batch are the connections that write it, which are counted before",
    "spark.sql.streaming.checkpointFileManagerClass": "the files of a checkpoint are synced as this class writes them",
    "spark.ui.enabled": "use --ui",
    "spark.ui.port": "use --ui PORT",
}
PACKAGES_SETTING = "spark.jars.packages"  # comes from the sources, too


def check_conf(conf: Mapping[str, str]) -> Mapping[str, str]:
    """Return Spark settings of a user's. Raises RuntimeSetupError for one that Tidemark relies on, and for a typo."""
    for name in conf:
        if not name.startswith("spark."):
            raise RuntimeSetupError(f"{name!r} is not a setting of Spark, whose names begin with 'spark.'")
        if name in RELIED_ON:
            raise RuntimeSetupError(f"{name!r} cannot be set, since Tidemark relies on it: {RELIED_ON[name]}")
    return conf
