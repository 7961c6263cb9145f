"""Reprocess: states are fed anew while the old ones are served, and swapped whole."""

import threading
from dataclasses import replace

import psycopg
import pytest

from tests.state_backends.feed import Feed
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.reprocess import Reprocess, ShadowSession, abort
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateReader, StateSpec, Sum
from tidegauge.state_backends.errors import FencedError, PipelineHeldError, SpecMismatchError, SwapError
from tidegauge.state_backends.schema.swap import ROOM, Swap

pytestmark = pytest.mark.spark

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, changelog=True)


def words(folder, spec=WORDS):
    lines = Stream.read(TextFiles(folder, files_per_batch=1))
    split = lines.each(word="explode(split(line, ' '))").each(letters="length(word)")
    return Pipeline("word_count", [split.group_by("word").persistent_aggregate(spec)])


# Another meaning of the state, which no migration can bridge.
LETTERS = StateSpec("words", key={"word": "text"}, measures={"letters": Sum("letters", type="bigint")}, changelog=True)


def reprocess(workspace, pipeline, on_batch=lambda batch: None, stopping=None, **options):
    return Reprocess(
        pipeline,
        workspace.spark,
        workspace.dsn,
        workspace.checkpoint,
        on_batch,
        stopping or threading.Event(),
        **options,
    )


@pytest.fixture
def counted(workspace):
    """Two files, counted by the first declaration."""
    workspace.land("1.txt", "dog cat")
    workspace.land("2.txt", "dog")
    workspace.run(words(workspace.input))
    return workspace


@pytest.mark.core
def test_readers_see_the_old_state_whole_until_they_see_the_new_one_whole(counted):
    seen = []

    def look(batch):
        seen.append(counted.values("words"))

    ended = reprocess(counted, words(counted.input, LETTERS), look).run()

    assert ended
    assert seen == [{"dog": {"count": 2}, "cat": {"count": 1}}] * 2
    assert counted.values("words") == {"dog": {"letters": 6}, "cat": {"letters": 3}}
    assert counted.rows("SELECT letters FROM tidegauge_live.words ORDER BY word") == [(3,), (6,)]
    assert counted.rows("SELECT name, open_txid FROM tidegauge.pipeline WHERE reprocesses IS NULL") == [
        ("word_count", None)
    ]


def test_the_past_begins_anew_and_the_pipeline_goes_on_from_where_its_reprocess_ended(counted):
    reprocess(counted, words(counted.input, LETTERS)).run()
    reader = StateReader(counted.conn, Catalog(counted.conn).get("words"))
    first = reader.multi_get([("dog",)], at_txid=ROOM + 1)
    with pytest.raises(Exception, match=str(ROOM + 1)):
        reader.multi_get([("dog",)], at_txid=2)
    counted.land("3.txt", "dog cow")

    batches = counted.run(words(counted.input, LETTERS))

    assert [each["value"] for each in first.parsed()] == [{"letters": 3}]
    assert batches == [(ROOM + 3, 1)]
    assert counted.values("words") == {"dog": {"letters": 9}, "cat": {"letters": 3}, "cow": {"letters": 3}}
    assert not counted.checkpoint.with_name("checkpoint.reprocess").exists()


def test_one_that_was_stopped_goes_on_where_it_was_and_refuses_other_declarations(counted):
    stopping, batches = threading.Event(), []

    def stop_at_first(batch):
        batches.append(batch.txid)
        stopping.set()

    stopped = reprocess(counted, words(counted.input, LETTERS), stop_at_first, stopping).run()
    meanwhile = counted.values("words")
    with pytest.raises(SpecMismatchError, match="its reprocess was begun for other declarations of words; abort it"):
        reprocess(counted, words(counted.input)).run()
    with pytest.raises(SpecMismatchError, match="but it is being reprocessed"):
        counted.run(words(counted.input, replace(WORDS, partitions=2)))
    ended = reprocess(counted, words(counted.input, LETTERS), lambda batch: batches.append(batch.txid)).run()

    assert (stopped, ended) == (False, True)
    assert meanwhile == {"dog": {"count": 2}, "cat": {"count": 1}}
    assert batches == [ROOM + 1, ROOM + 2]
    assert counted.values("words") == {"dog": {"letters": 6}, "cat": {"letters": 3}}


def test_one_that_was_aborted_leaves_nothing(counted):
    stopping = threading.Event()
    reprocess(counted, words(counted.input, LETTERS), lambda batch: stopping.set(), stopping).run()

    abort("word_count", counted.dsn, counted.checkpoint)
    counted.land("3.txt", "cow")
    counted.run(words(counted.input))

    assert counted.values("words") == {"dog": {"count": 2}, "cat": {"count": 1}, "cow": {"count": 1}}
    assert counted.rows("SELECT name FROM tidegauge.pipeline") == [("word_count",)]
    assert counted.rows("SELECT tablename FROM pg_tables WHERE schemaname LIKE 'tidegauge_shadow%'") == []
    assert not counted.checkpoint.with_name("checkpoint.reprocess").exists()


def test_a_failed_attempt_at_a_batch_of_a_reprocess_counts_once(counted):
    class Accident(Exception):
        pass

    struck = []

    def strike(frame):
        if len(struck) == 1:
            struck.append(True)
            raise Accident
        struck.append(True)
        return frame

    def accident_prone():
        base = words(counted.input, LETTERS)
        behind = base.feeds[0].new_values_stream().where("false").transform(strike)
        total = StateSpec("total", measures={"n": Count()})
        return Pipeline("word_count", [base.feeds[0].stream.merge(behind).persistent_aggregate(total), base.feeds[0]])

    with pytest.raises(Accident):
        reprocess(counted, accident_prone()).run()
    reprocess(counted, accident_prone()).run()

    assert counted.values("words") == {"dog": {"letters": 6}, "cat": {"letters": 3}}
    assert counted.values("total") == {(): {"n": 3}}
    assert counted.rows(f"SELECT attempt FROM tidegauge.batch WHERE txid = {ROOM + 1}") == [(2,)]


def test_the_driver_may_go_on_meanwhile_and_is_overtaken_by_the_swap(counted):
    ended = []

    def drive():
        driver = Driver(words(counted.input), counted.spark, counted.dsn, RunOptions(counted.checkpoint))
        try:
            driver.run()
        except FencedError as error:
            ended.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    counted.land("3.txt", "cow")
    try:
        assert reprocess(counted, words(counted.input, LETTERS)).run()
    finally:
        thread.join(timeout=60)

    assert not thread.is_alive()
    assert "another driver has taken over" in str(ended[0])
    assert counted.values("words") == {"dog": {"letters": 6}, "cat": {"letters": 3}, "cow": {"letters": 3}}


def test_a_swap_behind_a_batch_that_is_open_leaves_no_row_of_it(counted):
    """The pipeline's driver was killed in mid-batch; its states without a successor go back."""
    other = StateSpec("kept", key={"word": "text"}, measures={"count": Count()})
    both = Pipeline("word_count", [words(counted.input).feeds[0], replace(words(counted.input).feeds[0], spec=other)])
    with psycopg.connect(counted.dsn, autocommit=True) as conn:
        ledger = BatchLedger(conn, "word_count")
        ledger.acquire()
        Catalog(conn).register_states("word_count", both.specs, both.guarantees)
        batch = ledger.begin(2)
        conn.execute(
            "INSERT INTO tidegauge_state.kept (word, count, txid, updated_at) VALUES ('ghost', 1, %s, now())",
            [batch.txid],
        )

    reprocess(counted, words(counted.input, LETTERS)).run()

    assert counted.rows("SELECT * FROM tidegauge_state.kept") == []
    assert counted.values("words") == {"dog": {"letters": 6}, "cat": {"letters": 3}}


def test_a_second_reprocess_of_a_pipeline_is_refused_while_the_first_lives(counted):
    pipeline = words(counted.input, LETTERS)
    Swap(counted.conn, "word_count").begin(pipeline.specs, spout="transactional")
    with ShadowSession(pipeline, counted.dsn):
        with pytest.raises(PipelineHeldError, match="'word_count@reprocess' is held by a live driver"):
            reprocess(counted, words(counted.input, LETTERS)).run()
        with pytest.raises(PipelineHeldError):
            abort("word_count", counted.dsn, counted.checkpoint)


def test_one_that_read_nothing_does_not_empty_the_states(counted, tmp_path):
    """The wrong folder, say, where less input is accepted."""
    with pytest.raises(SwapError, match="its reprocess has read nothing"):
        reprocess(counted, words(tmp_path / "elsewhere", LETTERS), accept_shorter=True).run()

    assert counted.values("words") == {"dog": {"count": 2}, "cat": {"count": 1}}


def test_a_swap_without_a_successor_is_refused(conn):
    Feed(conn, [WORDS], pipeline="word_count").ledger.release()

    with pytest.raises(SwapError, match="no reprocess is under way"):
        Swap(conn, "word_count").swap([WORDS], {"words": "exactly once"})


def test_a_pipeline_that_writes_a_store_of_its_own_is_refused(workspace):
    class Nowhere:
        def make_state(self, partition):
            return self

    stream = Stream.read(TextFiles(workspace.input))
    pipeline = Pipeline("word_count", [stream.partition_persist(Nowhere(), None, name="nowhere")])

    with pytest.raises(PipelineError, match="writes a store of its own, which would be written twice"):
        reprocess(workspace, pipeline)
