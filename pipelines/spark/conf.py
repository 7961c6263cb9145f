"""Spark's settings that Tidegauge makes."""

from pyspark.sql import SparkSession

from tidegauge.pipelines.spark.versions import checkpoint_file_manager

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

# Settings of a session that the queries of a batch rely on, whatever those of the session that its input comes from.
BATCH_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # A value that does not fit its type must be an error, and not null.
    "spark.sql.ansi.enabled": "true",
    # Adaptive execution plans each stage again, which a small micro-batch waits for (0.37 s a state instead of 0.19 s,
    # measured), and combines the shuffle into one partition, so that one connection would do all the work.
    "spark.sql.adaptive.enabled": "false",
    # How the texts of queries are read: quoted names, groups by number, types by name.
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Rows of an Arrow batch, each sent as one COPY message: more rows save calls, fewer save memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}

SETTINGS = {
    **BATCH_SETTINGS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # How long an idle query waits before it checks for input; Spark's default of 10 ms lists folders all the time.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Spark's default asks Hadoop's other file API, which without Hadoop's native library starts some 50 processes per
    # trigger (`chmod`, `readlink`): 0.08 s of 0.13. On a local disk both write a file beside and rename it. For a
    # checkpoint in a store see `manage_files_of_stores`.
    FILE_MANAGER: checkpoint_file_manager(),
    # Spark compiles some four classes per state and forgets all but the last 100 by default: a pipeline of 100 states
    # compiled them for every batch, which took a quarter of Java's processor time.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # By default PySpark notes the line of Python that each operation of a column was written in, for the messages of
    # errors, which takes ten messages to Java and back for each: half of all that a small batch sends.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A task that does not react must not delay a stop without limit.
    "spark.sql.streaming.stopTimeout": "30s",
}

WRAP_SOURCES = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"

PACKAGES_SETTING = "spark.jars.packages"  # comes from the sources, too


def keep_limits_to_the_end(spark: SparkSession) -> None:
    """Let queries that end with their input keep the limit of each source, whatever the others can do.

    By default a source that does not know such queries makes Spark read all input of all sources as one batch, also
    that of a source whose limit is 0 because it waits.
    """
    spark.conf.set(WRAP_SOURCES, "true")


def manage_files_of_stores(spark: SparkSession) -> None:
    """Let Spark choose how the files of checkpoints are written, unless the user has: that depends on the store.

    It stays so in this session, whose running queries have made their choice.
    """
    if spark.conf.get(FILE_MANAGER, None) == checkpoint_file_manager():
        spark.conf.unset(FILE_MANAGER)
