"""A partial reprocess feeds one state of a pipeline again, up to the committed batch, and leaves the others alone."""

import shutil
import threading

import pytest

from tests.pipelines.repair.words import LETTERS, WORDS
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.partial_reprocess import PartialReprocess
from tidegauge.pipelines.repair.reprocess import abort
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Catalog, Count, StateReader, StateSpec
from tidegauge.state_backends.errors import FencedError, OutOfReachError, ShorterInputError, SpecMismatchError
from tidegauge.state_backends.schema.swap import Swap

pytestmark = pytest.mark.spark

LENGTHS = StateSpec("lengths", key={"length": "integer"}, measures={"count": Count()})


def two_states(folder, spec=WORDS, files_per_batch=1):
    lines = Stream.read(TextFiles(folder, files_per_batch=files_per_batch))
    split = lines.each(word="explode(split(line, ' '))").each(letters="length(word)", length="length(word)")
    words = split.group_by("word").persistent_aggregate(spec)
    return Pipeline("word_count", [words, split.group_by("length").persistent_aggregate(LENGTHS)])


def reprocess(workspace, states=("words",), on_batch=lambda batch: None, stopping=None):
    place = workspace.spark, workspace.dsn, workspace.checkpoint
    pipeline = two_states(workspace.input, LETTERS)
    return PartialReprocess(pipeline, states, *place, on_batch, stopping or threading.Event())


def lengths(workspace):
    return {length: value["count"] for length, value in workspace.values("lengths").items()}


def letters(workspace):
    return {word: value["letters"] for word, value in workspace.values("words").items()}


@pytest.fixture
def counted(workspace):
    for number, line in enumerate(["dog cat", "dog", "horse dog"], 1):
        workspace.land(f"{number}.txt", line)
    workspace.run(two_states(workspace.input))
    return workspace


def test_the_state_is_fed_again_in_a_new_epoch_without_the_others_and_the_pipeline_goes_on_in_both(counted):
    """Readers have the past since the batch before."""
    untouched = "SELECT *, xmin FROM tidegauge_state.lengths ORDER BY length"
    epoch = "SELECT epoch FROM tidegauge.pipeline"
    before, first_epoch, batches = counted.rows(untouched), counted.rows(epoch), []

    assert reprocess(counted, on_batch=lambda batch: batches.append(batch.txid)).run()

    assert batches == [2, 3]
    assert letters(counted) == {"dog": 9, "cat": 3, "horse": 5}
    assert counted.rows(untouched) == before
    assert counted.rows("SELECT name, committed_txid FROM tidegauge.pipeline") == [("word_count", 3)]
    assert [path.name for path in counted.checkpoint.parent.glob("checkpoint*")] == ["checkpoint"]
    assert counted.rows(epoch) != first_epoch

    reader = StateReader(counted.conn, Catalog(counted.conn).get("words"))
    then = [reader.multi_get([("dog",)], at_txid=txid).parsed()[0]["value"] for txid in (2, 3)]
    with pytest.raises(OutOfReachError):
        reader.multi_get([("dog",)], at_txid=1)
    counted.land("4.txt", "dog cow")
    on = counted.run(two_states(counted.input, LETTERS))

    assert then == [{"letters": 6}, {"letters": 9}]
    assert on == [(4, 1)]
    assert letters(counted) == {"dog": 12, "cat": 3, "horse": 5, "cow": 3}
    assert lengths(counted) == {3: 6, 5: 1}


def test_the_committed_batch_can_come_again_with_other_input(counted):
    """As of a checkpoint that has lost its newest files."""
    reprocess(counted).run()
    for entry in ("commits/2", "offsets/2", "sources/0/2"):
        (counted.checkpoint / entry).unlink()
        (counted.checkpoint / entry).with_name(f".{entry[-1]}.crc").unlink(missing_ok=True)
    counted.land("4.txt", "dog")

    batches = counted.run(two_states(counted.input, LETTERS, files_per_batch=2))

    assert batches == [(3, 2)]
    assert letters(counted) == {"dog": 12, "cat": 3, "horse": 5}
    assert lengths(counted) == {3: 5, 5: 1}


def test_what_is_committed_meanwhile_is_counted_in_both(counted):
    def land_one_more(batch):
        if not (counted.input / "4.txt").exists():
            counted.land("4.txt", "dog")
            counted.run(two_states(counted.input))

    assert reprocess(counted, on_batch=land_one_more).run()

    assert letters(counted) == {"dog": 12, "cat": 3, "horse": 5}
    assert lengths(counted) == {3: 5, 5: 1}


def test_a_driver_that_runs_is_overtaken(counted):
    failures, options = [], RunOptions(counted.checkpoint)
    running = threading.Event()

    def drive():
        try:
            pipeline = two_states(counted.input)
            Driver(pipeline, counted.spark, counted.dsn, options, lambda batch: running.set()).run()
        except FencedError as error:
            failures.append(error)

    driver = threading.Thread(target=drive)
    driver.start()
    counted.land("4.txt", "dog")
    assert running.wait(60)

    assert reprocess(counted).run()

    driver.join(60)
    assert len(failures) == 1
    assert letters(counted) == {"dog": 12, "cat": 3, "horse": 5}


def test_one_that_was_interrupted_can_be_aborted_and_begins_again(counted):
    batches = []

    stopped = stopped_after_a_batch(counted)
    abort("word_count", counted.dsn, counted.checkpoint)
    counted.land("4.txt", "dog")
    counted.run(two_states(counted.input))
    after_abort = counted.values("words"), lengths(counted)
    again = stopped_after_a_batch(counted)
    ended = reprocess(counted, on_batch=lambda batch: batches.append(batch.txid)).run()

    assert (stopped, again, ended) == (True, True, True)
    assert after_abort == ({"dog": {"count": 4}, "cat": {"count": 1}, "horse": {"count": 1}}, {3: 5, 5: 1})
    assert batches == [3, 4]
    assert letters(counted) == {"dog": 12, "cat": 3, "horse": 5}


def stopped_after_a_batch(workspace):
    stopping = threading.Event()
    return not reprocess(workspace, on_batch=lambda batch: stopping.set(), stopping=stopping).run()


def test_what_cannot_be_fed_is_named_before_anything_is_begun(counted):
    """Nor does it go on with the shadow of a reprocess of all states."""
    gone = counted.input / "1.txt"
    gone.rename(counted.input.with_name("elsewhere"))

    with pytest.raises(PipelineError, match="does not feed 'wrods'; it feeds words, lengths"):
        reprocess(counted, states=["wrods"])
    with pytest.raises(ShorterInputError, match=r"fed input that its sources no longer have: .*'1\.txt'.*--reprocess"):
        reprocess(counted).run()
    begun = counted.rows("SELECT name FROM tidegauge.pipeline")
    counted.input.with_name("elsewhere").rename(gone)
    Swap(counted.conn, "word_count").begin(two_states(counted.input, LETTERS).specs, spout="transactional")
    with pytest.raises(SpecMismatchError, match="begun for other declarations"):
        reprocess(counted).run()

    assert begun == [("word_count",)]


def test_much_input_comes_in_several_batches(counted, monkeypatch):
    monkeypatch.setattr("tidegauge.pipelines.repair.partial_reprocess.STEP_ROWS", 1)
    batches = []

    reprocess(counted, on_batch=lambda batch: batches.append(batch.txid)).run()

    assert batches == [1, 2, 3]
    assert letters(counted) == {"dog": 9, "cat": 3, "horse": 5}


def test_a_pipeline_without_a_committed_batch_has_nothing_to_reprocess(workspace):
    workspace.run(two_states(workspace.input))
    shutil.rmtree(workspace.checkpoint)

    with pytest.raises(PipelineError, match="has committed no batch"):
        reprocess(workspace).run()
