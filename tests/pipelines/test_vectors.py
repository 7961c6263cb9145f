"""Trident's cases of what a task does to a state (tests/vectors/trident.json), through the function that tasks run."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.context import BatchContext
from pipelines.feeding import run_partition
from pipelines.tasks import MergeTask
from state_backends import Count, StateSpec
from state_backends.errors import DuplicateKeyError
from tests.state_backends.feed import Feed

TRIDENT = json.loads((Path(__file__).parents[1] / "vectors" / "trident.json").read_text())
CASES = {case["name"]: case for case in TRIDENT["persist_vectors"]}
VIEWS = StateSpec("views", key={"page": "text"}, measures={"n": Count()})

# Verbs that are not there yet, with their cases.
NOT_BUILT = {"results_must_align_with_inputs": "the verb state_query"}


@pytest.fixture
def feed(conn):
    """Eight batches are committed, as the cases have it."""
    feed = Feed(conn, [VIEWS], pipeline="views")
    for _ in range(8):
        feed.run([{"page": "a", "n": 1}])
    return feed


def task(batch, dsn, *rows):
    """Run what an executor runs over one partition."""
    partition = [pa.RecordBatch.from_pylist(list(rows))] if rows else []
    return list(run_partition([MergeTask(VIEWS, BatchContext(batch, dsn))], [{}])(iter(partition)))


def test_no_case_is_left_out():
    assert set(CASES) == {"empty_partition_calls_nothing", "order_of_calls", "updater_exception_means_no_commit_call"}
    assert {case["name"] for case in TRIDENT["state_query_vectors"]} == set(NOT_BUILT)


def test_an_empty_partition_calls_nothing(feed):
    assert CASES["empty_partition_calls_nothing"]["expect_calls"] == []

    assert task(feed.begin(8), "postgresql://nobody@127.0.0.1:1/none") == []


def test_a_batch_begins_updates_and_commits(feed, database_url):
    assert CASES["order_of_calls"]["expect_calls"] == ["begin_commit(9)", "update_state", "commit(9)"]

    batch = feed.begin(8)
    task(batch, database_url, {"page": "a", "n": 5})
    before = feed.read(VIEWS, ("a",))
    feed.ledger.commit(batch)

    assert batch.txid == CASES["order_of_calls"]["txid"]
    assert (before, feed.read(VIEWS, ("a",))) == ([{"n": 8}], [{"n": 13}])


def test_a_task_that_raises_leaves_nothing_and_the_batch_open(feed, database_url):
    """Storm leaves what had been written; here it is one transaction."""
    batch = feed.begin(8)

    with pytest.raises(DuplicateKeyError):
        task(batch, database_url, {"page": "new", "n": 1}, {"page": "new", "n": 2})

    (row,) = feed.conn.execute("SELECT committed_txid, open_txid FROM tidemark.pipeline WHERE name = 'views'")
    assert row == (8, 9)
    assert feed.backing(VIEWS).multi_get([("new",)]) == [None]
