"""Pipelines as they are declared: names, states, guarantees, and the jobs that come with Tidegauge."""

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.discovery import Search, examples
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.schema.definition import definition, from_definition

TOTALS = StateSpec("totals", measures={"count": Count()})


def lines(folder="in"):
    return Stream.read(TextFiles(folder))


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


@pytest.mark.parametrize("example", Search([examples()]).declarations, ids=str)
def test_every_example_has_its_name_and_its_states_survive_the_catalog(example):
    pipeline = example.pipeline()

    assert example.module == f"tidegauge.pipelines.jobs.{pipeline.name}"
    assert pipeline.description
    for spec in pipeline.specs:
        assert definition(from_definition(spec.name, definition(spec), spec.ttl)) == definition(spec)
        assert pipeline.guarantees[spec.name] == "exactly once"


class TestInputs:
    def test_a_state_is_computed_from_the_sources_and_states_that_it_reads_itself(self):
        words = StateSpec("words", key={"word": "text"}, measures={"count": Count()})
        names = StateSpec("names", key={"word": "text"}, measures={"count": Count()})
        counted = lines().group_by(word="value").persistent_aggregate(words)
        looked_up = counted.new_values_stream().merge(lines("more")).state_query(names, ["word"], name="string")
        pipeline = Pipeline("p", [looked_up.persistent_aggregate(TOTALS)])

        assert pipeline.inputs == {
            "words": {"sources": ["folder 'in'"], "states": [], "lookups": []},
            "totals": {"sources": ["folder 'more'"], "states": ["words"], "lookups": ["names"]},
        }

    def test_a_source_without_a_text_goes_by_its_class(self):
        class Custom(TextFiles):
            __str__ = object.__str__

        pipeline = Pipeline("p", [Stream.read(Custom("in")).persistent_aggregate(TOTALS)])

        assert pipeline.inputs["totals"]["sources"] == ["Custom"]
