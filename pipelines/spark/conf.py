"""The Spark settings that Tidegauge sets."""

import os

from pyspark.sql import SparkSession

from tidegauge.pipelines.embedded.data_dir import folder_until_exit
from tidegauge.pipelines.spark.versions import checkpoint_file_manager

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

# Settings that the queries of a batch rely on. They apply even if the input comes from a session with other settings.
BATCH_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # A value that does not fit its type must be an error, and not null.
    "spark.sql.ansi.enabled": "true",
    # Off, because adaptive execution plans each stage again, which takes a small micro-batch 0.37 s a state instead of
    # 0.19 s (measured), and combines the shuffle into one partition, so that one connection would do all the work.
    "spark.sql.adaptive.enabled": "false",
    # How SQL text is parsed: quoted names, groups by number, types by name. Our generated SQL relies on it.
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
    # How long an idle query waits before it checks for input. Not Spark's default of 10 ms, because that lists folders
    # all the time.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Not Spark's default, because that uses Hadoop's other file API, which without Hadoop's native library starts some
    # 50 processes per trigger (`chmod`, `readlink`): 0.08 s of 0.13. On a local disk both write a temporary file and
    # rename it. For a checkpoint in a store see `manage_files_of_stores`.
    FILE_MANAGER: checkpoint_file_manager(),
    # How long Spark keeps an entry of its log of files that a compact one repeats; the last 100 stay anyway. Not its
    # default of 10 minutes, because it lists all entries in every batch: 2.5 ms per 100, and four batches a second make
    # 2,400.
    "spark.sql.streaming.fileSource.log.cleanupDelay": "30s",
    # Spark compiles about four classes per state, and by default caches only the last 100. A pipeline of 100 states
    # therefore compiled them in every batch, which took a quarter of Java's processor time.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Off, because PySpark otherwise records the Python line of each column operation for error messages. That takes ten
    # messages to Java and back per operation, half of all that a small batch sends.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Off, because a batch's events are cached only until its states have read them: choosing a compression for them
    # took a fifth of the processor time of a large batch with four states.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Off, because Spark 4.3 otherwise refuses a checkpoint for good if its driver was killed, or lost its power, while
    # it wrote the first plan. That a folder is another query's is noticed by the ledger.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # Limited, so that a task that does not react cannot delay a stop forever.
    "spark.sql.streaming.stopTimeout": "30s",
}

UNIX_SOCKETS, SOCKET_FOLDER = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
SOCKET_NAME_BYTES = len("/.01234567-0123-0123-0123-0123456789ab.sock")  # as Spark names them
MOST_PATH_BYTES = 103  # of a Unix socket, on macOS; 107 on Linux

WRAP_SOURCES = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"

PACKAGES_SETTING = "spark.jars.packages"  # the packages that the sources need are added to the user's


def local_settings() -> dict[str, str]:
    """Return the settings of a session whose tasks run on this machine: Java and Python talk over Unix sockets.

    Over TCP a task of a small batch waits up to 40 ms: Spark sends its input in several parts and waits until Python's
    side has acknowledged the first, which the system delays. Four states of 20 flights took 235 ms a trigger and take
    206 ms. Spark has it since 4.1. The sockets are in a folder of their own, which is removed when this process ends,
    because Spark leaves them unless it is stopped. If the folder's path is too long for a socket, TCP is used, and
    on a cluster as well, because the temporary folder of a container of YARN is too long.
    """
    folder = folder_until_exit("tidegauge-")
    fits = len(os.fsencode(folder)) + SOCKET_NAME_BYTES <= MOST_PATH_BYTES
    return {UNIX_SOCKETS: "true", SOCKET_FOLDER: str(folder)} if fits else {}


def keep_limits_to_the_end(spark: SparkSession) -> None:
    """Make queries that end with their input respect the limit of each source, even if one source does not support it.

    By default, if one source does not support such queries, Spark reads all input of all sources as one batch, even
    that of a source whose limit is 0 because it waits.
    """
    spark.conf.set(WRAP_SOURCES, "true")


def manage_files_of_stores(spark: SparkSession) -> None:
    """Let Spark choose how checkpoint files are written, because that depends on the store, unless the user has set it.

    This cannot be undone in the session, and running queries keep their file manager.
    """
    if spark.conf.get(FILE_MANAGER, None) == checkpoint_file_manager():
        spark.conf.unset(FILE_MANAGER)
