"""What a reprocess refuses, and what its swap leaves, by the ledger alone."""

from dataclasses import replace

import psycopg
import pytest

from tests.pipelines.repair.ledger_reprocess import NAME, LedgerReprocess
from tests.pipelines.repair.words import LETTERS, WORDS, words
from tests.state_backends.feed import Feed
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.reprocess import Reprocess, ShadowSession, abort
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import BatchLedger, Catalog, Count, StateSpec
from tidegauge.state_backends.errors import PipelineHeldError, SwapError
from tidegauge.state_backends.schema.swap import Swap


def test_a_swap_behind_a_batch_that_is_open_leaves_no_row_of_it(counted_once):
    """The pipeline's driver was killed in mid-batch; its states without a successor go back."""
    [fed] = words(counted_once.input).feeds
    other = StateSpec("kept", key={"word": "text"}, measures={"count": Count()})
    both = Pipeline(NAME, [fed, replace(fed, spec=other)])
    with psycopg.connect(counted_once.dsn, autocommit=True) as conn:
        ledger = BatchLedger(conn, NAME)
        ledger.acquire()
        Catalog(conn).register_states(NAME, both.specs, both.guarantees)
        batch = ledger.begin(1)
        conn.execute(
            "INSERT INTO tidegauge_state.kept (word, count, txid, updated_at) VALUES ('ghost', 1, %s, now())",
            [batch.txid],
        )

    counted_once.reprocess().run()

    assert counted_once.is_new
    assert counted_once.conn.execute("SELECT * FROM tidegauge_state.kept").fetchall() == []


def test_a_second_reprocess_of_a_pipeline_is_refused_while_the_first_lives(counted_once):
    pipeline = words(counted_once.input, LETTERS)
    Swap(counted_once.conn, NAME).begin(pipeline.specs, spout="transactional")
    with ShadowSession(pipeline, counted_once.dsn):
        with pytest.raises(PipelineHeldError, match="'word_count@reprocess' is held by a live driver"):
            counted_once.reprocess().run()
        with pytest.raises(PipelineHeldError):
            abort(NAME, counted_once.dsn, counted_once.checkpoint)


def test_one_that_read_nothing_does_not_empty_the_states(counted_once):
    """The wrong folder, say, where less input is accepted."""

    class ReadsNothing(LedgerReprocess):
        def _pass(self):
            return 0

    with pytest.raises(SwapError, match="its reprocess has read nothing"):
        counted_once.reprocess(ReadsNothing, accept_shorter=True).run()

    assert not counted_once.is_new


def test_a_swap_without_a_successor_is_refused(conn):
    Feed(conn, [WORDS], pipeline=NAME).ledger.release()

    with pytest.raises(SwapError, match="no reprocess is under way"):
        Swap(conn, NAME).swap([WORDS], {"words": "exactly once"})


def test_a_pipeline_that_writes_a_store_of_its_own_is_refused(tmp_path):
    class Nowhere:
        def make_state(self, partition):
            return self

    stream = Stream.read(TextFiles(tmp_path))
    pipeline = Pipeline(NAME, [stream.partition_persist(Nowhere(), None, name="nowhere")])

    with pytest.raises(PipelineError, match="writes a store of its own, which would be written twice"):
        Reprocess(pipeline, None, "", tmp_path / "checkpoint")
