"""Any format of Spark's as a source, with those that ship with Spark and one that is written in Python."""

import shutil

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.check import check
from tidegauge.pipelines.errors import InputLostError, PipelineError, SourceSetupError
from tidegauge.pipelines.repair.recovery import Recovery
from tidegauge.pipelines.sources.spark_source import SparkSource
from tidegauge.state_backends import Count, StateSpec

NUMBERS = StateSpec("numbers", key={"parity": "bigint"}, measures={"count": Count()})


def numbers(source):
    return Pipeline("numbers", [Stream.read(source).group_by(parity="n % 2").persistent_aggregate(NUMBERS)])


def counts(workspace):
    return {key: value["count"] for key, value in workspace.values("numbers").items()}


class Counting(DataSource):
    """Numbers from 0, two more with each batch, six in all."""

    @classmethod
    def name(cls):
        return "counting"

    def schema(self):
        return "n bigint"

    def streamReader(self, schema):  # noqa: N802  Spark's name
        return CountingReader()


class CountingReader(DataSourceStreamReader):
    def initialOffset(self):  # noqa: N802
        return {"n": 0}

    def latestOffset(self):  # noqa: N802
        return {"n": 6}

    def partitions(self, start, end):
        return [InputPartition((start["n"], end["n"]))]

    def read(self, partition):
        return ((n,) for n in range(*partition.value))


@pytest.mark.spark
class TestASparkSource:
    def test_reads_files_of_any_format_and_recovers_them_by_name(self, workspace):
        def land(*rows):
            workspace.spark.createDataFrame([(n,) for n in rows], "n bigint").coalesce(1).write.mode("append").parquet(
                str(workspace.input)
            )

        source = SparkSource(
            "parquet",
            options={"path": workspace.input, "maxFilesPerTrigger": 1},
            schema="n bigint",
            spout="transactional",
        )
        land(1, 2, 3)
        first = workspace.run(numbers(source))
        workspace.forget_last_commit()
        again = workspace.run(numbers(source))
        shutil.rmtree(workspace.checkpoint)
        said = list(
            Recovery(numbers(source), workspace.dsn, workspace.checkpoint, lambda: workspace.spark).restore_checkpoint()
        )
        land(4)
        after = workspace.run(numbers(source))

        assert (first, again, after) == ([(1, 1)], [], [(2, 1)])
        assert counts(workspace) == {1: 2, 0: 2}
        assert "source 'parquet': cannot say what is still there; the query fails when it starts if the" in said[1]

    def test_reads_a_data_source_written_in_python_with_its_offsets(self, workspace):
        workspace.spark.dataSource.register(Counting)

        workspace.run(numbers(SparkSource("counting")))

        assert counts(workspace) == {0: 3, 1: 3}
        assert workspace.rows("SELECT offsets, input->0->'items' FROM tidegauge.batch") == [
            ([{"n": 6}], {"0": [None, {"n": 6}]})
        ]

    def test_without_replay_is_only_approximate_and_cannot_go_back(self, workspace):
        source = SparkSource("rate", options={"rowsPerSecond": 5}, spout="non_transactional")

        pipeline = Pipeline(
            "numbers",
            [Stream.read(source).group_by(parity="value % 2").persistent_aggregate(NUMBERS)],
        )

        check(pipeline, workspace.spark)
        assert pipeline.guarantees == {"numbers": "approximate"}
        with pytest.raises(InputLostError, match="source 'rate': does not keep its input"):
            source.check_from(3, (), lambda: workspace.spark)

    def test_names_the_package_of_a_format_that_is_missing(self, spark):
        scala = "_2.13:" if spark.version >= "4" else "_2."

        with pytest.raises(
            SourceSetupError, match=f"Spark has no format of this name; add io.delta:delta-spark{scala}"
        ):
            check(numbers(SparkSource("delta", options={"path": "/lake"})), spark)
        with pytest.raises(SourceSetupError, match=f"add org.apache.spark:spark-avro_.*:{spark.version}"):
            check(numbers(SparkSource("avro")), spark)
        with pytest.raises(SourceSetupError, match=r"source 'lakehouse': .* add the package of the format"):
            check(numbers(SparkSource("lakehouse")), spark)

    def test_says_what_spark_says_where_it_cannot_be_read(self, spark):
        with pytest.raises(SourceSetupError, match=r"source 'parquet': cannot be read: .*[Ss]chema"):
            check(numbers(SparkSource("parquet", options={"path": "/"})), spark)


def test_a_spout_is_one_of_the_three_kinds():
    with pytest.raises(PipelineError, match="spout 'exactly once': give the name of a format, and one of"):
        SparkSource("rate", spout="exactly once")
