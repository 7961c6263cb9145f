"""A release that is rolled back: the older one starts over states that have a measure more."""

from dataclasses import replace

import pytest

from tests.pipelines.fault_injection import InjectedFault
from tests.redis_without import redis_without
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import BatchLedger, Catalog, Changelog, Count, DistinctCount, StateSpec, Sum, state_reader
from tidegauge.state_backends.errors import StateGapError
from tidegauge.state_backends.schema.feeding import Feeding, feeding

pytestmark = pytest.mark.spark

WORDS = StateSpec(
    "rolled_words",
    key={"word": "text"},
    measures={"count": Count(), "letters": Sum("letters", type="bigint")},
    changelog=True,
)
VARIANTS = {
    "folded in SQL": WORDS,
    "folded in Python": replace(WORDS, measures={**WORDS.measures, "lines": DistinctCount("line")}),
    "in Redis": replace(WORDS, backend="redis"),
}


@pytest.fixture(params=VARIANTS)
def newer(request):
    with redis_without("rolled_words"):
        return VARIANTS[request.param]


@pytest.fixture
def older(newer):
    return replace(newer, measures={"count": Count()})


def words(workspace, spec):
    lines = Stream.read(TextFiles(workspace.input, files_per_batch=1))
    split = lines.each(word="explode(split(line, ' '))").each(letters="length(word)")
    return Pipeline("rolled_back", [split.group_by("word").persistent_aggregate(spec)])


def die_before_the_commit(workspace, spec):
    def die(ledger, batch, **figures):
        raise InjectedFault("before the commit")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchLedger, "commit", die)
        with pytest.raises(InjectedFault):
            workspace.run(words(workspace, spec))


def counts(workspace):
    reader = state_reader(workspace.conn, Catalog(workspace.conn).get("rolled_words"))
    page = reader.page(limit=100).parsed()
    return {entry["key"][0]: (entry["value"]["count"], entry["value"]["letters"]) for entry in page}


def test_the_measure_stands_still_while_the_older_release_runs_and_is_fed_again_once_the_gap_is_accepted(
    workspace, newer, older
):
    """It never takes part in the older release's versions, and says since when it is complete."""
    workspace.land("1.txt", "dog cat")
    workspace.run(words(workspace, newer))
    workspace.land("2.txt", "dog")

    workspace.run(words(workspace, older))
    workspace.land("3.txt", "dog cow")
    die_before_the_commit(workspace, older)
    of_older = counts(workspace), feeding(workspace.conn, "rolled_words")
    history = Changelog(workspace.conn, Catalog(workspace.conn).get("rolled_words")).history(("dog",))
    with pytest.raises(StateGapError, match="was not fed by batches 2 to 2"):
        workspace.run(words(workspace, newer))
    workspace.run(words(workspace, newer), accept_gap=True)

    more = [name for name in newer.measures if name != "count"]
    assert of_older == ({"dog": (2, 3), "cat": (1, 3)}, Feeding(measures=dict.fromkeys(more, 1)))
    assert [(change.value["count"], change.value["letters"]) for change in history] == [(2, 3), (1, 3)]
    assert counts(workspace) == {"dog": (3, 6), "cat": (1, 3), "cow": (1, 3)}
    since = workspace.rows("SELECT measures_since FROM tidegauge.state WHERE name = 'rolled_words'")
    assert since == [(dict.fromkeys(more, 2),)]


def test_the_newer_release_is_exact_where_the_older_one_committed_nothing(workspace, newer, older):
    workspace.land("1.txt", "dog cat")
    workspace.run(words(workspace, newer))
    workspace.land("2.txt", "dog cow")
    die_before_the_commit(workspace, newer)
    die_before_the_commit(workspace, older)

    workspace.run(words(workspace, newer))

    assert counts(workspace) == {"dog": (2, 6), "cat": (1, 3), "cow": (1, 3)}
    assert feeding(workspace.conn, "rolled_words") == Feeding()
