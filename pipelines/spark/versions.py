"""The versions of Spark that pipelines run on, and how they differ.

What works on which version is in docs/spark-versions.md; `make test-versions` runs the tests of the streams on each.
"""

import re

import pyspark
from pyspark.errors import PySparkException

from tidegauge.pipelines.errors import SparkVersionError

# The same range as in pyproject.toml. Not Spark 3.5, because it lacks what exact input needs: variants, try_cast, and
# checked UTF-8.
OLDEST, NEWEST = (4, 0), (4, 3)

LIMITED_READERS = (4, 2)  # the first version whose readers in Python can limit a batch


def spark_version(text: str = pyspark.__version__) -> tuple[int, int]:
    """Return the major and the minor number of a version of Spark."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise SparkVersionError(f"PySpark's version {text!r} does not begin with two numbers; install another version")
    return int(found[1]), int(found[2])


def check_version(text: str = pyspark.__version__) -> None:
    """Raise SparkVersionError for a version of Spark that pipelines do not run on."""
    if not OLDEST <= spark_version(text) <= NEWEST:
        raise SparkVersionError(
            f"PySpark {text!r} is installed, but pipelines run on Spark {_shown(OLDEST)} to {_shown(NEWEST)}; install "
            f"one of those: pip install 'pyspark=={_shown(NEWEST)}.*'"
        )


def require_spark(first: tuple[int, int], what: str, text: str = pyspark.__version__) -> None:
    """Raise SparkVersionError if `what` needs a later version of Spark. first: the first one that has it."""
    if spark_version(text) < first:
        raise SparkVersionError(
            f"{what} needs Spark {_shown(first)} or later, but PySpark {text!r} is installed; install a later one with "
            f"pip install 'pyspark=={_shown(NEWEST)}.*'; docs/spark-versions.md lists what works on which version"
        )


def lacks_function(error: PySparkException, text: str = pyspark.__version__) -> bool:
    """Return whether an error says that a function does not exist, which a later version of Spark may have."""
    return spark_version(text) < NEWEST and error.getCondition() == "UNRESOLVED_ROUTINE"


def checkpoint_file_manager(text: str = pyspark.__version__) -> str:
    """Return Spark's class that writes a checkpoint file under a temporary name and renames it."""
    # Spark 4.1 has moved the class to another package.
    package = "streaming.checkpointing" if spark_version(text) >= (4, 1) else "streaming"
    return f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"


def _shown(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
