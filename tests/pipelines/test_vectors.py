"""Trident's cases of its verbs partitionPersist and stateQuery (tests/vectors/trident.json), run by Spark."""

import json
from pathlib import Path

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import Count, StateSpec

pytestmark = pytest.mark.spark

TRIDENT = json.loads((Path(__file__).parents[1] / "vectors" / "trident.json").read_text())
PERSIST = {case["name"]: case for case in TRIDENT["persist_vectors"]}
QUERY = {case["name"]: case for case in TRIDENT["state_query_vectors"]}
LAST_VALUES = StateSpec("last_values", key={"word": "text"}, value="jsonb")


def test_no_case_is_left_out():
    assert set(PERSIST) == {"empty_partition_calls_nothing", "order_of_calls", "updater_exception_means_no_commit_call"}
    assert set(QUERY) == {"results_must_align_with_inputs"}


class CallLog:
    """A store of the user's own that appends each call it gets to a file."""

    def __init__(self, path):
        self.path = path

    def make_state(self, partition):
        return self

    def note(self, call):
        with self.path.open("a") as file:
            file.write(call + "\n")

    def begin_commit(self, txid):
        self.note(f"begin_commit({txid})")

    def commit(self, txid):
        self.note(f"commit({txid})")

    def calls(self):
        return self.path.read_text().splitlines() if self.path.exists() else []


class NoteUpdate:
    def update_state(self, state, tuples, collector):
        state.note("update_state")
        if any(row["word"] == "raise" for row in tuples):
            raise ValueError("the updater failed")


class PutWords:
    """Puts each word, then fails if one of them is `raise`."""

    def update_state(self, state, tuples, collector):
        for row in tuples:
            state.multi_put([(row["word"],)], [state.txid])
        if any(row["word"] == "raise" for row in tuples):
            raise ValueError("the updater failed")


@pytest.fixture
def call_log(tmp_path):
    return CallLog(tmp_path / "calls")


def words(folder):
    """The words of the input, one file per batch; an empty word makes no tuple."""
    return Stream.read(JsonFiles(folder, schema="word string", files_per_batch=1)).where("word != ''")


def land(workspace, tuples, *, txid, word="man"):
    """Land files so that batch `txid` has `tuples` tuples and the batches before it have none."""
    for number in range(1, txid):
        workspace.land(f"{number}.json", {"word": ""})
    workspace.land(f"{txid}.json", *[{"word": word}] * tuples or [{"word": ""}])


def noting(workspace, call_log):
    return Pipeline("noted", [words(workspace.input).partition_persist(call_log, NoteUpdate(), name="noted")])


def test_an_empty_partition_calls_nothing(workspace, call_log):
    case = PERSIST["empty_partition_calls_nothing"]
    land(workspace, case["tuples"], txid=1)

    batches = workspace.run(noting(workspace, call_log))

    assert (batches, call_log.calls()) == ([(1, 1)], case["expect_calls"])


def test_a_batch_begins_updates_and_commits(workspace, call_log):
    case = PERSIST["order_of_calls"]
    land(workspace, case["tuples"], txid=case["txid"])

    workspace.run(noting(workspace, call_log))

    assert call_log.calls() == case["expect_calls"]


def test_an_updater_that_raises_means_no_commit_call(workspace, call_log):
    case = PERSIST["updater_exception_means_no_commit_call"]
    land(workspace, case["tuples"], txid=case["txid"], word="raise")

    with pytest.raises(Exception, match="the updater failed"):
        workspace.run(noting(workspace, call_log))

    assert call_log.calls() == case["expect_calls"]
    assert workspace.rows("SELECT committed_txid, open_txid FROM tidegauge.pipeline") == [(8, 9)]


def test_an_updater_that_raises_leaves_nothing_in_a_state_of_ours(workspace):
    """Storm leaves what had been written; here it is one transaction."""
    workspace.land("1.json", {"word": "man"})
    workspace.land("2.json", {"word": "dog"}, {"word": "raise"})
    put = words(workspace.input).partition_persist(LAST_VALUES, PutWords())

    with pytest.raises(Exception, match="the updater failed"):
        workspace.run(Pipeline("words", [put]))

    assert workspace.values("last_values") == {"man": 1}
    assert workspace.rows("SELECT word FROM tidegauge_state.last_values") == [("man",)]
    assert workspace.rows("SELECT committed_txid, open_txid FROM tidegauge.pipeline") == [(1, 2)]


class Directory:
    """A static state that has no rows."""

    def make_state(self, partition):
        return self


class FirstResults:
    """A query function that returns `results` results for any inputs."""

    def __init__(self, results):
        self.results = results

    def batch_retrieve(self, state, inputs):
        assert len(inputs) == QUERY["results_must_align_with_inputs"]["inputs"]
        return [None] * self.results

    def execute(self, values, result):
        yield (result,)


def test_results_that_do_not_align_with_the_inputs_are_an_error(workspace):
    case = QUERY["results_must_align_with_inputs"]
    workspace.land("1.json", *[{"word": f"word {number}"} for number in range(case["inputs"])])
    found = words(workspace.input).state_query(Directory(), ["word"], FirstResults(case["results"]), found="string")
    counts = StateSpec("counts", key={"found": "text"}, measures={"n": Count()})

    with pytest.raises(Exception, match=r"FirstResults\.batch_retrieve returned 1 results for 2 inputs") as raised:
        workspace.run(Pipeline("found", [found.group_by("found").persistent_aggregate(counts)]))

    assert case["expect_error"]
    assert PipelineError.__name__ in str(raised.value)
    assert workspace.values("counts") == {}
    assert workspace.rows("SELECT committed_txid, open_txid FROM tidegauge.pipeline") == [(0, 1)]
