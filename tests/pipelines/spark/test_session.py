"""Spark's session: how tasks talk to Java, and the types of keys and measures, which agree with the table of types."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from tidegauge.pipelines.batch.key_filter import FAULTS
from tidegauge.pipelines.sources.postgres.table import SPARK_TYPES
from tidegauge.pipelines.spark.conf import SOCKET_FOLDER, local_settings
from tidegauge.pipelines.spark.session import partitions_of, spark_type
from tidegauge.state_backends.spec.types import KEY_TYPES, TYPES

FULL_NAMES = {"timestamp with time zone": "timestamptz"}


@pytest.mark.parametrize("name", [name for name in SPARK_TYPES if FULL_NAMES.get(name, name) in TYPES])
def test_a_column_of_a_table_is_read_as_the_type_that_a_state_s_column_has(name):
    read = StructType().add("column", SPARK_TYPES[name])["column"].dataType

    assert read.simpleString() == TYPES[FULL_NAMES.get(name, name)].spark


def test_faults_are_of_types_that_keys_have():
    assert set(FAULTS) < set(KEY_TYPES)


def test_a_type_that_the_table_lacks_is_called_in_spark_as_in_postgresql():
    assert [spark_type("text"), spark_type("json"), spark_type("smallint")] == ["string", "string", "smallint"]


def test_partitions_are_counted_of_rows_that_spark_has_and_of_a_query(spark):
    rows = spark.createDataFrame(spark.sparkContext.parallelize([(1,), (2,), (3,)], 3), "n int")

    assert [partitions_of(rows), partitions_of(rows.where("n > 1").repartition(2, "n"))] == [3, 2]


def test_tasks_and_java_talk_over_a_unix_socket(spark):
    rows = spark.sparkContext.parallelize([None], 1)

    assert rows.map(lambda _: os.environ["PYTHON_UNIX_DOMAIN_ENABLED"]).collect() == ["True"]


def test_the_folder_of_the_sockets_is_removed_when_the_process_ends():
    code = f"from tidegauge.pipelines.spark.conf import *; print(local_settings()[{SOCKET_FOLDER!r}])"

    folder = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    assert Path(folder).name.startswith("tidegauge-")
    assert not Path(folder).exists()


def test_tcp_is_used_if_the_temporary_folder_is_too_long_for_a_socket(tmp_path, monkeypatch):
    long = tmp_path / ("long" * 25)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))

    assert local_settings() == {}
