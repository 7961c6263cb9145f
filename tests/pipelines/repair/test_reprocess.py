"""Reprocess: states are fed anew while the old ones are served, and swapped whole."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.pipelines.repair.ledger_reprocess import Killed
from tests.pipelines.repair.words import LETTERS, WORDS, reprocess, words
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.state_backends import Catalog, Count, StateReader, StateSpec
from tidegauge.state_backends.errors import FencedError, SpecMismatchError
from tidegauge.state_backends.schema.swap import ROOM

pytestmark = pytest.mark.spark


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


def test_one_that_was_killed_after_the_swap_is_finished_by_the_next_start(counted, killed_at):
    """At any of its steps: see test_reprocess_interrupted.py."""
    killed_at("move checkpoint.reprocess")
    with pytest.raises(Killed):
        reprocess(counted, words(counted.input, LETTERS), keep_old=timedelta()).run()
    counted.land("3.txt", "dog")

    batches = counted.run(words(counted.input, LETTERS))

    assert batches == [(ROOM + 3, 1)]
    assert counted.values("words") == {"dog": {"letters": 9}, "cat": {"letters": 3}}
    assert counted.rows("SELECT phase FROM tidegauge.reprocess") == [("settled",)]
    assert [path.name for path in counted.checkpoint.parent.glob("checkpoint*")] == ["checkpoint"]
