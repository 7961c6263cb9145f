"""Which versions of Spark pipelines run on, and where those differ.

What works on which version is in docs/spark-versions.md; `make test-versions` runs the tests of the streams on each.
"""

import re

import pyspark
from pyspark.errors import PySparkException

from tidegauge.pipelines.errors import SparkVersionError

# As pyproject.toml has it. Spark 3.5 lacks what exact input rests on: variants, try_cast, UTF-8 that is checked.
OLDEST, NEWEST = (4, 0), (4, 3)

LIMITED_READERS = (4, 2)  # the first with readers in Python that limit a batch


def spark_version(text: str = pyspark.__version__) -> tuple[int, int]:
    """Return the major and the minor number of a version of Spark."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise SparkVersionError(f"PySpark's version is {text!r}, which has no two numbers; install another")
    return int(found[1]), int(found[2])


def check_version(text: str = pyspark.__version__) -> None:
    """Raise SparkVersionError for a version of Spark that pipelines do not run on."""
    if not OLDEST <= spark_version(text) <= NEWEST:
        raise SparkVersionError(
            f"PySpark {text!r} is installed, and pipelines run on Spark {_shown(OLDEST)} to {_shown(NEWEST)}; install "
            f"one of those: pip install 'pyspark=={_shown(NEWEST)}.*'"
        )


def require_spark(first: tuple[int, int], what: str, text: str = pyspark.__version__) -> None:
    """Raise SparkVersionError if `what` needs a later version of Spark. first: the first one that has it."""
    if spark_version(text) < first:
        raise SparkVersionError(
            f"{what} needs Spark {_shown(first)} or later, and PySpark {text!r} is installed; install a later one, as "
            f"pip install 'pyspark=={_shown(NEWEST)}.*'; docs/spark-versions.md lists what works on which"
        )


def lacks_function(error: PySparkException, text: str = pyspark.__version__) -> bool:
    """Return whether an error says that there is no function of that name, which a later version may have."""
    return spark_version(text) < NEWEST and error.getCondition() == "UNRESOLVED_ROUTINE"


def checkpoint_file_manager(text: str = pyspark.__version__) -> str:
    """Return Spark's class that writes a file of a checkpoint beside and renames it."""
    # Spark 4.1 has moved it.
    package = "streaming.checkpointing" if spark_version(text) >= (4, 1) else "streaming"
    return f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"


def _shown(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
