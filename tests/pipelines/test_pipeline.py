"""Pipelines as they are declared: names, states, guarantees, and the jobs that come with Tidemark."""

import pytest

from pipelines.discovery import Search, examples
from pipelines.errors import PipelineError
from pipelines.pipeline import Pipeline
from pipelines.sources.files import TextFiles
from pipelines.stream import Stream
from state_backends import Count, StateSpec
from state_backends.schema.definition import definition, from_definition

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

    assert example.module == f"pipelines.jobs.{pipeline.name}"
    assert pipeline.description
    for spec in pipeline.specs:
        assert definition(from_definition(spec.name, definition(spec), spec.ttl)) == definition(spec)
        assert pipeline.guarantees[spec.name] == "exactly once"
