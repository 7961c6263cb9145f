"""new_values_stream: the new values of a batch feed a second state, and count there exactly once."""

from datetime import timedelta

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Count, Mean, StateSpec, Sum

pytestmark = pytest.mark.spark

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count(), "length": Mean("length")})
BY_COUNT = StateSpec("by_count", key={"times": "bigint"}, measures={"words": Sum("step", type="bigint")})


def histogram(folder, words=WORDS):
    """How many words occur how often: each word that moves up leaves one place and enters another."""
    lines = Stream.read(TextFiles(folder, files_per_batch=1))
    stream = lines.each(word="explode(split(line, ' '))").each(length="length(word)")
    counted = stream.group_by("word").persistent_aggregate(words)
    moves = counted.new_values_stream().each(
        move="explode(array(struct(count AS times, 1 AS step), struct(prev_count AS times, -1 AS step)))"
    )
    steps = moves.each(times="move.times", step="move.step").where("times is not null")
    return Pipeline("histogram", [steps.group_by("times").persistent_aggregate(BY_COUNT)])


def words_by_count(workspace):
    return {times: value["words"] for times, value in workspace.values("by_count").items()}


@pytest.mark.core
def test_new_values_and_those_before_keep_a_second_state_exact(workspace):
    workspace.land("1.txt", "dog cat dog")
    workspace.land("2.txt", "dog cow")

    batches = workspace.run(histogram(workspace.input))

    assert batches == [(1, 1), (2, 1)]
    assert words_by_count(workspace) == {1: 2, 2: 0, 3: 1}


def test_a_replayed_batch_moves_nothing_twice(workspace):
    workspace.land("1.txt", "dog")
    workspace.land("2.txt", "dog dog")
    pipeline = histogram(workspace.input)
    pipeline.sources[0].spout = "opaque"
    workspace.run(pipeline)
    workspace.forget_last_commit()
    again = histogram(workspace.input)
    again.sources[0].spout = "opaque"

    batches = workspace.run(again)

    assert batches == [(2, 2)]
    assert words_by_count(workspace) == {1: 0, 3: 1}


def test_an_expired_row_has_no_previous_values(workspace):
    short = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, ttl=timedelta(seconds=60))
    workspace.land("1.txt", "dog")
    workspace.run(histogram(workspace.input, short))
    workspace.conn.execute("UPDATE tidegauge_state.words SET updated_at = updated_at - interval '2 minutes'")

    workspace.land("2.txt", "dog")
    workspace.run(histogram(workspace.input, short))

    assert words_by_count(workspace) == {1: 2}


def test_a_state_fed_by_new_values_need_not_be_listed_and_is_fed_first(workspace):
    pipeline = histogram(workspace.input)

    assert [fed.name for fed in pipeline.ordered] == ["words", "by_count"]
    assert [[fed.name for fed in level] for level in pipeline.levels] == [["words"], ["by_count"]]


def test_a_watermark_behind_new_values_is_refused(workspace):
    words = Stream.read(TextFiles(workspace.input)).each(word="line").group_by("word").persistent_aggregate(WORDS)
    later = (
        words.new_values_stream()
        .with_watermark("at", "1 hour")
        .persistent_aggregate(StateSpec("all", measures={"n": Count()}))
    )

    with pytest.raises(PipelineError, match="put with_watermark before the state"):
        Pipeline("p", [later])
