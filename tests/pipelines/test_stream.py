"""Streams and pipelines as they are declared: what is refused, the guarantees, and the jobs that come with them."""

from pathlib import Path

import pytest

from pipelines.errors import PipelineError
from pipelines.guarantee import guarantee
from pipelines.jobs import JOBS
from pipelines.pipeline import Pipeline
from pipelines.sources.files import TextFiles
from pipelines.stream import Stream, tumbling
from state_backends import Count, StateSpec
from state_backends.schema.catalog import definition, from_definition

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()})
TOTALS = StateSpec("totals", measures={"count": Count()})


def lines(folder="in"):
    return Stream.read(TextFiles(folder))


@pytest.mark.parametrize(
    ("spout", "kind", "expected"),
    [
        ("transactional", "opaque", "exactly once"),
        ("transactional", "transactional", "exactly once"),
        ("transactional", "non_transactional", "at least once"),
        ("opaque", "opaque", "exactly once"),
        ("opaque", "transactional", "approximate"),
        ("opaque", "non_transactional", "at least once"),
        ("non_transactional", "opaque", "approximate"),
        ("non_transactional", "transactional", "approximate"),
        ("non_transactional", "non_transactional", "approximate"),
    ],
)
def test_the_guarantee_of_each_pair_of_spout_and_state(spout, kind, expected):
    assert guarantee(spout, kind) == expected


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


def test_a_pipeline_name_that_is_not_a_folder_name_is_refused():
    with pytest.raises(PipelineError, match=r"pipeline '\.\./p': invalid name"):
        Pipeline("../p", [lines().persistent_aggregate(TOTALS)])


def test_a_pipeline_without_a_state_is_refused():
    with pytest.raises(PipelineError, match="pipeline 'p': feeds no state"):
        Pipeline("p", [])


def test_a_pipeline_that_feeds_a_state_twice_is_refused():
    stream = lines()

    with pytest.raises(PipelineError, match="pipeline 'p': feeds a state twice: totals, totals"):
        Pipeline("p", [stream.persistent_aggregate(TOTALS), stream.persistent_aggregate(TOTALS)])


def test_a_pipeline_over_two_sources_has_the_weaker_guarantee():
    class Opaque(TextFiles):
        spout = "opaque"

    other = StateSpec("other", measures={"count": Count()}, kind="transactional")

    pipeline = Pipeline(
        "p", [lines("a").persistent_aggregate(TOTALS), Stream.read(Opaque("b")).persistent_aggregate(other)]
    )

    assert pipeline.source.spout == "opaque"
    assert pipeline.guarantees == {"totals": "exactly once", "other": "approximate"}


def test_every_verb_leaves_the_stream_it_was_called_on_as_it_was():
    stream = lines()

    longer = stream.where("true").each(word="line").transform(lambda frame: frame)

    assert [type(node) for node in stream.inputs] == [TextFiles]
    assert longer.inputs != stream.inputs


def test_a_column_name_cannot_be_read_as_an_expression():
    assert tumbling("at`, now()", "1 hour") == "window(`at``, now()`, '1 hour').start"


@pytest.mark.parametrize("name", sorted(JOBS))
def test_every_shipped_job_has_its_name_and_its_states_survive_the_catalog(name):
    pipeline = JOBS[name](Path("in"))

    assert pipeline.name == name
    for spec in pipeline.specs:
        assert definition(from_definition(spec.name, definition(spec), spec.ttl)) == definition(spec)
        assert pipeline.guarantees[spec.name] == "exactly once"
