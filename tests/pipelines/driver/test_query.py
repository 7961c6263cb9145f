"""One run of a query: it is bound to its checkpoint, stops between two batches, and keeps what Spark measured."""

import gc
import logging
import threading

import pytest

from tests.state_backends.backends.own_redis import wait_until
from tidegauge.pipelines.driver import driver as driver_module
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.driver.query import StoppingError
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends.errors import CheckpointMismatchError

pytestmark = pytest.mark.spark


def test_a_new_checkpoint_over_filled_states_is_refused_until_it_is_rebound(workspace, tmp_path):
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    workspace.checkpoint = tmp_path / "another"
    for landed in workspace.input.iterdir():
        landed.unlink()
    workspace.land("2.txt", "cat")

    with pytest.raises(CheckpointMismatchError, match="--rebind"):
        workspace.run(word_count(workspace.input))
    refused = workspace.values("words")
    batches = workspace.run(word_count(workspace.input), rebind=True)

    assert refused == {"dog": {"count": 1}}
    assert batches == [(2, 1)]
    assert workspace.values("words") == {"dog": {"count": 1}, "cat": {"count": 1}}


def test_a_stop_is_taken_at_the_end_of_the_batch_and_the_next_run_goes_on_from_there(workspace):
    for number in range(4):
        workspace.land(f"{number}.txt", "dog")
    pipeline = word_count(workspace.input, files_per_batch=1)
    seen, stopped = [], threading.Event()

    def stop_at_second(batch):
        seen.append(batch.txid)
        if batch.txid == 2:
            driver.stop()
            stopped.set()

    driver = Driver(pipeline, workspace.spark, workspace.dsn, RunOptions(workspace.checkpoint), stop_at_second)
    driver.run()
    open_batches = workspace.rows("SELECT open_txid FROM tidegauge.pipeline WHERE open_attempt IS NULL")
    workspace.run(word_count(workspace.input, files_per_batch=1))

    assert stopped.is_set()
    assert open_batches == [(None,)] or workspace.rows("SELECT max(attempt) FROM tidegauge.batch") == [(2,)]
    assert workspace.values("words") == {"dog": {"count": 4}}


def test_a_batch_that_spark_began_during_a_stop_is_no_error_in_the_log(caplog):
    spark, raised = logging.getLogger("spark.MicroBatchExecution"), "ForeachBatchUserFuncException: .. query.{}: .."

    spark.error("Query %s terminated with error", 1, extra={"exception": raised.format(StoppingError.__name__)})
    spark.error("Query %s terminated with error", 2, extra={"exception": raised.format("OperationalError")})
    spark.error("no exception", extra={"exception": None})

    assert caplog.messages == ["Query 2 terminated with error", "no exception"]


def test_each_batch_keeps_its_metrics_however_seldom_they_are_collected(workspace, monkeypatch):
    monkeypatch.setattr(driver_module, "WATCH_SECONDS", 60.0)
    for number in range(6):
        workspace.land(f"{number}.txt", *["dog"] * (number + 1))

    workspace.run(word_count(workspace.input, files_per_batch=1))

    kept = workspace.rows(
        "SELECT txid, metrics -> 'input_rows', (metrics -> 'duration_ms' ->> 'addBatch')::bigint "
        "<= (metrics -> 'duration_ms' ->> 'triggerExecution')::bigint, "
        "metrics -> 'processed_rows_per_second' IS NOT NULL FROM tidegauge.batch ORDER BY txid"
    )
    assert kept == [(txid, txid, True, True) for txid in range(1, 7)]


def test_metrics_follow_the_batch_though_a_new_checkpoint_numbers_from_0(filled, tmp_path):
    filled.checkpoint = tmp_path / "another"
    (filled.input / "1.txt").unlink()
    filled.land("2.txt", "cat", "cat")

    filled.run(word_count(filled.input), rebind=True)

    assert filled.rows("SELECT txid, batch_id, metrics -> 'input_rows' FROM tidegauge.batch ORDER BY txid") == [
        (1, 0, 1),
        (2, 0, 2),
    ]


def test_a_skipped_batch_keeps_its_metrics(filled):
    before = filled.rows("SELECT metrics FROM tidegauge.batch")
    filled.forget_last_commit()

    filled.run(word_count(filled.input))

    assert filled.rows("SELECT metrics FROM tidegauge.batch") == before


def test_a_query_that_has_ended_is_freed(workspace):
    # What Spark calls back stays in the pool for as long as the query lives in Java.
    callbacks, jvm = workspace.spark.sparkContext._gateway.gateway_property.pool.dict, workspace.spark._jvm
    before = set(callbacks)

    for number in range(3):
        workspace.land(f"{number}.txt", "dog")
        workspace.run(word_count(workspace.input))

    wait_until(lambda: not left_over(callbacks, jvm) - before)
    assert set(callbacks) <= before


def left_over(callbacks, jvm):
    """Return the callbacks that are left once both sides have collected their garbage."""
    gc.collect()
    jvm.System.gc()
    return set(callbacks)
