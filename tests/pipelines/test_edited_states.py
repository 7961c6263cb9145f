"""What people set of a state between two batches or two attempts, through Spark."""

from datetime import timedelta

import pytest

from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault
from tests.state_backends.feed import let_time_pass
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Catalog, Changelog, Count, StateSpec
from tidegauge.state_backends.schema.overrides import DECLARED

pytestmark = pytest.mark.spark

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, ttl=timedelta(days=10))
DAY = timedelta(days=1)


class EditedFiles(TextFiles):
    spout = "opaque"


def words(folder, accident=None):
    """Counts words; struck before anything is written while `accident` holds something."""

    def strike(lines):
        if accident:
            raise InjectedFault(accident.pop())
        return lines

    lines = Stream.read(EditedFiles(folder, files_per_batch=1)).transform(strike)
    split = lines.each(word="explode(split(line, ' '))")
    return Pipeline("words", [split.group_by("word").persistent_aggregate(WORDS)])


@pytest.fixture
def counted(workspace):
    """One dog, two days ago."""
    workspace.land("1.txt", "dog")
    workspace.run(words(workspace.input))
    let_time_pass(workspace.conn, [WORDS], "words", 2 * DAY)
    return workspace


@pytest.mark.parametrize(
    ("before", "between", "dogs"), [(DECLARED, DAY, 2), (DAY, None, 1), (DAY, DECLARED, 1)], ids=str
)
def test_a_batch_that_is_tried_again_goes_by_the_ttl_of_its_first_try(counted, before, between, dogs):
    catalog = Catalog(counted.conn)
    counted.land("2.txt", "dog")
    catalog.edit("words", ttl=before)
    with pytest.raises(InjectedFault):
        counted.run(words(counted.input, accident=FaultAfterCheck(skip=1)))
    catalog.edit("words", ttl=between)

    batches = counted.run(words(counted.input))

    assert batches == [(2, 2)]
    assert counted.values("words") == {"dog": {"count": dogs}}


def test_a_driver_follows_an_edit_with_its_next_batch(counted):
    for name in ("2.txt", "3.txt"):
        counted.land(name, "dog")
    Catalog(counted.conn).edit("words", ttl=DAY)

    counted.run(words(counted.input))

    assert counted.values("words") == {"dog": {"count": 2}}


def test_a_changelog_that_people_have_set_is_kept_by_every_batch_from_the_next_start_on(counted):
    catalog = Catalog(counted.conn)
    catalog.edit("words", changelog=True)
    counted.land("2.txt", "dog cat")

    counted.run(words(counted.input))

    history = Changelog(counted.conn, catalog.get("words"))
    assert [(change.txid, change.value["count"]) for change in history.history(("dog",))] == [(2, 2), (1, 1)]
    assert [change.txid for change in history.history(("cat",))] == [2]


def test_a_changelog_that_people_have_dropped_does_not_stop_the_pipeline(counted):
    catalog = Catalog(counted.conn)
    catalog.edit("words", changelog=True)
    counted.run(words(counted.input))
    catalog.edit("words", changelog=DECLARED)
    counted.land("2.txt", "dog")

    counted.run(words(counted.input))

    assert counted.values("words") == {"dog": {"count": 2}}
    assert counted.rows("SELECT to_regclass('tidegauge_changelog.words')") == [(None,)]
