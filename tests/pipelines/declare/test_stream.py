"""Streams as they are declared: what the verbs refuse, and that they change nothing."""

from datetime import timedelta

import pytest

from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import calendar, tumbling
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


MINUTES = StateSpec(
    "minutes",
    key={"start": "timestamptz"},
    measures={"n": Count()},
    tiles={"minute": timedelta(hours=1), "hour": None},
)


@pytest.mark.parametrize(
    "start", ["at", tumbling("at", "1 hour"), tumbling("at", "1 minute", "5 seconds"), calendar("at", "day")]
)
def test_tiles_are_grouped_by_the_window_of_the_finest_one(start):
    lines().group_by(start=tumbling("at", "60 seconds")).persistent_aggregate(MINUTES)

    with pytest.raises(PipelineError, match=r"group by start=tumbling\(\.\., '1 minute'\)"):
        lines().group_by(start=start).persistent_aggregate(MINUTES)


def test_tiles_neither_close_nor_take_an_updater():
    with pytest.raises(PipelineError, match="so its windows cannot close"):
        lines().group_by(start=tumbling("at", "1 minute")).persistent_aggregate(MINUTES, allowed_lateness="1 hour")
    with pytest.raises(PipelineError, match="which only aggregators can fold"):
        lines().partition_persist(MINUTES, None)


def test_every_verb_leaves_the_stream_it_was_called_on_as_it_was():
    stream = lines()

    longer = stream.where("true").each(word="line").transform(lambda frame: frame)

    assert [type(node) for node in stream.inputs] == [TextFiles]
    assert longer.inputs != stream.inputs


def test_a_column_name_cannot_be_read_as_an_expression():
    assert tumbling("at`, now()", "1 hour") == "window(`at``, now()`, '1 hour', '1 hour', '0 seconds').start"
