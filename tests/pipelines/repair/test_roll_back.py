"""A roll-back puts back the states that a reprocess replaced; their source is read on from where they stopped."""

import json
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import psycopg
import pytest

from tests.pipelines.repair.test_reprocess import LETTERS, WORDS, counted, reprocess, words  # noqa: F401  counted: a fixture
from tests.pipelines.repair.test_reprocess_interrupted import Killed, folders, killed_at, phases  # noqa: F401
from tests.recovery_page import message_of
from tests.state_backends.feed import Feed
from tidegauge.pipelines.checkpoint.folder import checkpoint_id, settle
from tidegauge.pipelines.repair.reprocess import roll_back
from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.errors import PipelineHeldError, RollBackError, SpecMismatchError
from tidegauge.state_backends.schema.swap import Swap

ALL = {"dog": {"count": 3}, "cat": {"count": 1}, "cow": {"count": 1}}


@pytest.fixture
def replaced(counted):  # noqa: F811
    """Two files were counted, then reprocessed by another declaration, which has read a third one since."""
    reprocess(counted, words(counted.input, LETTERS)).run()
    counted.land("3.txt", "dog cow")
    counted.run(words(counted.input, LETTERS))
    return counted


def roll_back_words(workspace):
    roll_back("word_count", workspace.dsn, workspace.checkpoint)


@pytest.mark.spark
def test_the_old_states_are_back_and_read_what_only_the_new_ones_have_read(replaced):
    roll_back_words(replaced)
    back = replaced.values("words")

    with pytest.raises(SpecMismatchError, match="its declaration differs from the stored one"):
        replaced.run(words(replaced.input, LETTERS))
    batches = replaced.run(words(replaced.input))

    assert back == {"dog": {"count": 2}, "cat": {"count": 1}}
    assert batches == [(3, 1)]
    assert replaced.values("words") == ALL
    assert (phases(replaced), folders(replaced)) == (["rolled_back"], ["checkpoint"])


@pytest.mark.spark
def test_a_swap_that_was_cut_short_is_finished_first(counted, killed_at):  # noqa: F811
    killed_at("move checkpoint.reprocess")
    with pytest.raises(Killed):
        reprocess(counted, words(counted.input, LETTERS)).run()

    roll_back_words(counted)
    counted.land("3.txt", "dog cow")
    counted.run(words(counted.input))

    assert counted.values("words") == ALL


STEPS = [
    "enter rolling_back",
    "move checkpoint",
    "move checkpoint.kept",
    "remove checkpoint.replaced",
    "enter rolled_back",
]


@pytest.fixture
def swapped(conn, database_url, tmp_path):
    """A reprocess without Spark: the ledgers of both queries, and a checkpoint folder of each with its id alone."""
    feed = Feed(conn, [replace(WORDS, changelog=False)], pipeline="word_count")
    feed.run([{"word": "dog", "count": 1}])
    changed = [replace(LETTERS, changelog=False)]
    swap = Swap(conn, feed.pipeline)
    swap.begin(changed, spout=feed.spout)
    ledger = BatchLedger(conn, swap.name)
    ledger.acquire()
    ledger.bind("the new one")
    ledger.commit(ledger.begin(0), rows_in=1)
    for checkpoint_of in (feed.ledger, ledger):
        checkpoint_of.release()
    swap.swap(changed, {"words": ""}, keep_old=timedelta(days=1))
    for name, query_id in {"checkpoint": "checkpoint", "checkpoint.reprocess": "the new one"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "metadata").write_text(json.dumps({"id": query_id}))
    settle(conn, feed.pipeline, tmp_path / "checkpoint")
    return SimpleNamespace(conn=conn, dsn=database_url, checkpoint=tmp_path / "checkpoint")


def test_it_is_refused_while_a_driver_runs(swapped):
    with psycopg.connect(swapped.dsn, autocommit=True) as conn:
        BatchLedger(conn, "word_count").acquire()
        with pytest.raises(PipelineHeldError, match="stop it before starting another"):
            roll_back_words(swapped)

    assert is_new(swapped)


def test_it_is_refused_without_the_old_checkpoint_before_anything_is_touched(swapped):
    swapped.checkpoint.with_name("checkpoint.kept").rename(swapped.checkpoint.with_name("elsewhere"))

    with pytest.raises(RollBackError, match=message_of("A roll-back that cannot be done", 3)):
        roll_back_words(swapped)

    assert is_new(swapped)
    assert swapped.conn.execute("SELECT phase FROM tidegauge.reprocess").fetchall() == [("settled",)]


def is_new(swapped):
    """Return whether states and checkpoint are those that the reprocess made."""
    measures = Catalog(swapped.conn).get("words").measures.keys()
    return measures == {"letters"} and checkpoint_id(swapped.checkpoint) == "the new one"


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("next_is", ["a driver", "a roll-back"])
def test_one_that_was_killed_is_finished_by_what_comes_next(swapped, killed_at, step, next_is):  # noqa: F811
    killed_at(step)
    with pytest.raises(Killed):
        roll_back_words(swapped)
    has_begun = step != STEPS[0]

    if next_is == "a roll-back" or not has_begun:
        roll_back_words(swapped)
    else:
        settle(swapped.conn, "word_count", swapped.checkpoint)

    assert checkpoint_id(swapped.checkpoint) == "checkpoint"
    assert Catalog(swapped.conn).get("words").measures.keys() == {"count"}
    phase = swapped.conn.execute("SELECT phase FROM tidegauge.reprocess").fetchall()
    assert (phase, folders(swapped)) == ([("rolled_back",)], ["checkpoint"])


@pytest.mark.parametrize("step", STEPS[:1])
def test_one_that_was_killed_before_its_transaction_has_changed_nothing(swapped, killed_at, step):  # noqa: F811
    killed_at(step)
    with pytest.raises(Killed):
        roll_back_words(swapped)

    settle(swapped.conn, "word_count", swapped.checkpoint)

    assert is_new(swapped)
    assert folders(swapped) == ["checkpoint", "checkpoint.kept"]


@pytest.mark.spark
def test_a_driver_that_finishes_a_roll_back_reads_on_from_where_the_old_states_stopped(replaced, killed_at):  # noqa: F811
    killed_at("move checkpoint.kept")
    with pytest.raises(Killed):
        roll_back_words(replaced)

    replaced.run(words(replaced.input))

    assert replaced.values("words") == ALL


@pytest.mark.spark
def test_the_old_states_go_with_their_checkpoint_once_their_time_is_over(counted):  # noqa: F811
    reprocess(counted, words(counted.input, LETTERS), keep_old=timedelta(microseconds=1)).run()

    counted.run(words(counted.input, LETTERS))

    assert folders(counted) == ["checkpoint"]
    assert counted.rows("SELECT tablename FROM pg_tables WHERE schemaname LIKE 'tidegauge_kept%'") == []
    with pytest.raises(RollBackError, match="no replaced states are kept"):
        roll_back_words(counted)
