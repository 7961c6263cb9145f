"""The versions of Spark that pipelines run on, and what is refused by name on others."""

import re
import tomllib

import pyspark
import pytest
from pyspark.errors import AnalysisException

from tests.spark_versions import VERSIONS
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.errors import SparkVersionError
from tidegauge.pipelines.spark.versions import (
    LIMITED_READERS,
    NEWEST,
    OLDEST,
    check_version,
    checkpoint_file_manager,
    lacks_function,
    require_spark,
    spark_version,
)


@pytest.mark.parametrize("version", ["3.5.9", "4.4.0", "5.0.0.dev1"])
def test_a_version_outside_of_the_range_is_refused_by_name(version):
    with pytest.raises(SparkVersionError) as caught:
        check_version(version)

    assert str(caught.value) == (
        f"PySpark {version!r} is installed, but pipelines run on Spark 4.0 to 4.3; install one of those: "
        "pip install 'pyspark==4.3.*'"
    )


@pytest.mark.parametrize("version", [*VERSIONS, pyspark.__version__])
def test_the_versions_of_the_range_are_accepted(version):
    check_version(version)


def test_the_range_is_that_of_the_package_and_each_version_of_it_is_tested():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    [stated] = [each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark")]
    minors = [OLDEST, *sorted({spark_version(version) for version in VERSIONS} - {OLDEST})]

    assert stated == f"pyspark>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
    assert minors == [(4, minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]


def test_what_needs_a_later_version_is_refused_by_name():
    require_spark(LIMITED_READERS, "RedisStreams", "4.2.1")
    with pytest.raises(SparkVersionError) as caught:
        require_spark(LIMITED_READERS, "RedisStreams", "4.1.4")

    assert str(caught.value) == (
        "RedisStreams needs Spark 4.2 or later, but PySpark '4.1.4' is installed; install a later one with "
        "pip install 'pyspark==4.3.*'; docs/spark-versions.md lists what works on which version"
    )


@pytest.mark.spark
def test_only_an_older_spark_may_lack_a_function_that_a_later_one_has(spark):
    with pytest.raises(AnalysisException) as caught:
        spark.sql("SELECT no_such_function()")

    assert [lacks_function(caught.value, version) for version in VERSIONS] == [True, True, True, False]


@pytest.mark.spark
def test_spark_has_the_file_manager_of_its_version(spark):
    kind = spark.sparkContext._jvm.java.lang.Class.forName(checkpoint_file_manager())

    assert re.search(r"\.FileSystemBasedCheckpointFileManager$", kind.getName())
