"""Stream.given: a stream whose rows an application gives, with columns by name and type."""

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import PipelineError
from tidegauge.state_backends import Count, StateSpec

PAGES = StateSpec("pages", key={"page": "text"}, measures={"views": Count()})


def pages(schema=None, **spout):
    return Pipeline("pages", [Stream.given(schema, **spout).group_by("page").persistent_aggregate(PAGES)])


def given(schema=None):
    [source] = pages(schema).sources
    return source


def test_the_promise_of_a_replay_is_the_callers():
    assert pages().source.spout == "opaque"
    assert pages(spout="transactional").source.spout == "transactional"


@pytest.mark.spark
class TestRows:
    def test_keep_the_columns_of_the_schema_by_name(self, spark):
        frame = spark.createDataFrame([(1, "/", True)], "n int, page string, seen boolean")

        assert given("page string, n int").parse_given(frame).good().collect() == [("/", 1)]
        assert given().parse_given(frame).good().columns == ["n", "page", "seen"]

    def test_without_a_column_or_with_another_type_are_refused(self, spark):
        frame = spark.createDataFrame([(1, "/")], "n int, page string")

        with pytest.raises(PipelineError, match="column 'user' is missing in the DataFrame and string in the stream's"):
            given("page string, user string").parse_given(frame)
        with pytest.raises(PipelineError, match="column 'n' is int in the DataFrame and bigint in the stream's schema"):
            given("page string, n bigint").parse_given(frame)

    def test_are_read_by_no_driver(self, spark, tmp_path):
        driver = Driver(pages("page string"), spark, "unused", RunOptions(tmp_path / "checkpoint", once=True))

        with pytest.raises(PipelineError, match="given by an application, so no driver can read them"):
            driver.run()
