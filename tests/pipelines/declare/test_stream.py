"""Streams as they are declared: what the verbs refuse, and that they change nothing."""

import pytest

from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import tumbling
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Count, StateSpec

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()})


def lines():
    return Stream.read(TextFiles("in"))


def test_groups_that_are_not_the_state_s_key_are_refused_with_both():
    with pytest.raises(PipelineError) as refused:
        lines().group_by("line").persistent_aggregate(WORDS)

    assert str(refused.value) == (
        "state 'words': grouped by line, but its key is word and its measures are count; "
        "name the groups after the key columns, and give the state a measure"
    )


def test_a_state_of_json_values_cannot_be_aggregated_into():
    with pytest.raises(PipelineError, match="its measures are none"):
        lines().group_by("word").persistent_aggregate(StateSpec("w", key={"word": "text"}, value="jsonb"))


def test_every_verb_leaves_the_stream_it_was_called_on_as_it_was():
    stream = lines()

    longer = stream.where("true").each(word="line").transform(lambda frame: frame)

    assert [type(node) for node in stream.inputs] == [TextFiles]
    assert longer.inputs != stream.inputs


def test_a_column_name_cannot_be_read_as_an_expression():
    assert tumbling("at`, now()", "1 hour") == "window(`at``, now()`, '1 hour', '1 hour', '0 seconds').start"
