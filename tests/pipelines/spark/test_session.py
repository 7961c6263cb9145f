"""Spark's session: how tasks talk to Java, and the types of keys and measures, which agree with the table of types."""

import os

import pytest
from pyspark.sql.types import StructType

from tidegauge.pipelines.batch.key_filter import FAULTS
from tidegauge.pipelines.sources.postgres.table import SPARK_TYPES
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
