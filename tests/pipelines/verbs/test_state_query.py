"""state_query: bulk lookups within a stream, in the states as committed before the batch."""

import pytest

from tidegauge.pipelines.declare.functions import MapGet
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.state_query import retriever
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, Max, StateSpec

PROFILES = StateSpec("profiles", key={"user": "text"}, measures={"region": Max("region", type="text")})
BY_REGION = StateSpec("by_region", key={"region": "text"}, measures={"views": Count()})
EVENT = "user string, region string"


def views_by_region(folder, profiles=PROFILES):
    """Page views per region; a line with a region is a profile, one without is a view."""
    events = Stream.read(JsonFiles(folder, schema=EVENT, files_per_batch=1))
    known = events.where("region is not null").group_by("user").persistent_aggregate(profiles)
    views = events.where("region is null").project("user").state_query(profiles, ["user"], region="string")
    named = views.each(region="coalesce(region, 'unknown')").group_by("region").persistent_aggregate(BY_REGION)
    return Pipeline("views", [known, named])


def by_region(workspace):
    return {region: value["views"] for region, value in workspace.values("by_region").items()}


class Calls:
    """A state that records the keys it is asked for."""

    def __init__(self):
        self.asked = []

    def multi_get(self, keys):
        self.asked.append(list(keys))
        return [{"n": len(key[0])} for key in keys]


def test_a_repeated_input_is_looked_up_once_and_every_tuple_gets_the_result():
    state = Calls()

    answers = retriever(state, MapGet(("n",)))([("dog",), ("horse",), ("dog",)])

    assert [list(each) for each in answers] == [[(3,)], [(5,)], [(3,)]]
    assert state.asked == [[("dog",), ("horse",)]]


@pytest.mark.core
@pytest.mark.spark
def test_a_stream_finds_what_was_committed_before_its_batch(workspace):
    workspace.land("1.json", {"user": "ann", "region": "north"}, {"user": "ann"})
    workspace.land("2.json", {"user": "ann"}, {"user": "bob"}, {"user": "ann", "region": "south"})
    workspace.land("3.json", {"user": "ann"}, {"user": None})

    workspace.run(views_by_region(workspace.input))

    assert by_region(workspace) == {"north": 1, "south": 1, "unknown": 3}


@pytest.mark.spark
def test_a_replayed_batch_finds_the_same(workspace):
    def opaque():
        pipeline = views_by_region(workspace.input)
        pipeline.sources[0].spout = "opaque"
        return pipeline

    workspace.land("1.json", {"user": "ann", "region": "north"})
    workspace.land("2.json", {"user": "ann"}, {"user": "ann", "region": "south"})
    workspace.run(opaque())
    workspace.forget_last_commit()

    batches = workspace.run(opaque())

    assert batches == [(2, 2)]
    assert by_region(workspace) == {"north": 1}


@pytest.mark.spark
def test_a_state_of_the_same_pipeline_that_is_not_opaque_is_refused(workspace):
    plain = StateSpec("profiles", key={"user": "text"}, measures=PROFILES.measures, kind="transactional")

    with pytest.raises(PipelineError, match=r"state 'profiles': is transactional, .* make it opaque"):
        workspace.run(views_by_region(workspace.input, plain))


@pytest.mark.spark
def test_a_key_of_another_type_or_length_is_refused_at_the_start(workspace):
    events = Stream.read(JsonFiles(workspace.input, schema="user bigint, region string"))

    def asking(on):
        views = events.state_query(PROFILES, on, found="string")
        return Pipeline("views", [views.persistent_aggregate(StateSpec("n", measures={"n": Count()}))])

    with pytest.raises(PipelineError, match="key 'user' is bigint in the stream and text in the state"):
        workspace.run(asking(["user"]))
    with pytest.raises(PipelineError, match="state 'profiles': queried by user, region, but its key is user"):
        workspace.run(asking(["user", "region"]))
    with pytest.raises(PipelineError, match="`account` cannot be resolved"):
        workspace.run(asking(["account"]))


class Directory:
    """A store that is not Tidegauge's, with bulk lookups."""

    def make_state(self, partition):
        return self

    def bulk_get(self, users):
        return [{"ann": ["north", "south"]}.get(user, []) for user in users]


class QueryRegions:
    """Trident's QueryLocation; it emits any number of rows for one user."""

    def batch_retrieve(self, state, inputs):
        return state.bulk_get([user for (user,) in inputs])

    def execute(self, values, result):
        for region in result:
            yield (region,)


@pytest.mark.spark
def test_a_query_of_another_store_emits_zero_or_more_tuples(workspace):
    events = Stream.read(JsonFiles(workspace.input, schema=EVENT))
    regions = events.project("user").state_query(Directory(), ["user"], QueryRegions(), region="string")
    workspace.land("1.json", {"user": "ann"}, {"user": "bob"}, {"user": "ann"})

    workspace.run(Pipeline("views", [regions.group_by("region").persistent_aggregate(BY_REGION)]))

    assert by_region(workspace) == {"north": 2, "south": 2}
