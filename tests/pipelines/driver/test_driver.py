"""A driver runs a pipeline: one at a time, restarted after a failure, and listed with its status while it runs."""

import os
import re
from dataclasses import replace
from datetime import timedelta
from threading import Timer

import psycopg
import pytest

from tests.recovery_page import message_of
from tidegauge.pipelines.batch.tasks import MergeTask, written
from tidegauge.pipelines.checkpoint.folder import last_batch
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver import driver as driver_module
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.driver.session import DriverSession
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends import BatchLedger, Max
from tidegauge.state_backends.errors import BatchOrderError, ClockError, FencedError, PipelineHeldError
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.epochs import LastBatch
from tidegauge.state_backends.synchronizer.membership import NAME, members
from tidegauge.state_backends.synchronizer.revisioned_stream import RevisionedStream

pytestmark = pytest.mark.spark


def test_a_second_driver_is_refused_while_the_first_lives(workspace):
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    with psycopg.connect(workspace.dsn, autocommit=True) as other:
        BatchLedger(other, "word_count").acquire()
        # One that is silent is waited for, as test_connections.py has it.
        Timer(1, driver_status.report, [other, "word_count", "running"]).start()

        with pytest.raises(PipelineHeldError, match=r"pipeline 'word_count' is held by a live driver \(host "):
            workspace.run(word_count(workspace.input))
        reported = workspace.rows("SELECT status, message FROM tidegauge.driver")

    workspace.run(word_count(workspace.input))
    assert reported == [("running", "")]
    assert workspace.values("words") == {"dog": {"count": 1}}


def test_a_declaration_that_grew_is_migrated_at_the_start_and_reported(workspace, monkeypatch):
    workspace.land("1.txt", "dog cat")
    base = word_count(workspace.input)
    workspace.run(base)
    (words,) = base.feeds
    grown = replace(words.spec, partitions=2, measures=words.spec.measures | {"longest": Max("length", type="bigint")})
    stream = words.stream.each(length="length(line)")
    reported = []
    monkeypatch.setattr(DriverSession, "report", lambda session, *words, **_: reported.append(words))

    workspace.land("2.txt", "dog")
    workspace.run(replace(base, feeds=[replace(words, stream=stream, spec=grown)]))

    assert ("starting", "migrating state 'words': 2 rows copied") in reported
    assert workspace.values("words") == {"dog": {"count": 2, "longest": 3}, "cat": {"count": 1, "longest": None}}


def test_who_reads_the_tables_that_are_to_be_changed_is_reported(filled):
    base = word_count(filled.input)
    (words,) = base.feeds
    grown = replace(base, feeds=[replace(words, spec=replace(words.spec, partitions=2))])
    reported = []
    with psycopg.connect(filled.dsn, application_name="nightly export") as export:
        export.execute("SELECT FROM tidegauge_state.words")

        def end_export(session, *said, **_):
            reported.append(said)
            if "waiting" in said[-1]:
                export.rollback()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DriverSession, "report", end_export)
            with DriverSession(grown, filled.dsn):
                pass

    said = " ".join(word for words in reported for word in words)
    assert re.search(message_of("A schema change waits for a reader", 1), said)


def test_a_query_that_fails_for_a_while_is_started_again_and_counts_once(workspace, monkeypatch):
    monkeypatch.setattr(driver_module, "FIRST_PAUSE_SECONDS", 0.05)
    workspace.land("1.txt", "dog")
    base = word_count(workspace.input)
    words = base.feeds[0]
    states, seen = [], []

    def fail_twice(lines):
        states.append(workspace.rows("SELECT status, message FROM tidegauge.driver"))
        if 2 <= len(states) <= 3:
            raise psycopg.OperationalError("the server is not available")
        return lines

    stream = words.stream.transform(fail_twice)
    pipeline = Pipeline("word_count", [stream.group_by("word").persistent_aggregate(words.spec)])

    def stop_after(batch):
        seen.append((batch.txid, batch.attempt))
        driver.stop()

    driver = Driver(pipeline, workspace.spark, workspace.dsn, RunOptions(workspace.checkpoint), stop_after)
    driver.run()

    assert seen == [(1, 3)]
    assert workspace.values("words") == {"dog": {"count": 1}}
    assert workspace.rows("SELECT status FROM tidegauge.driver") == [("stopped",)]


def test_a_task_of_a_driver_that_was_replaced_writes_nothing(workspace):
    import pyarrow as pa

    workspace.land("1.txt", "dog")
    pipeline = word_count(workspace.input)
    workspace.run(pipeline)
    with psycopg.connect(workspace.dsn, autocommit=True) as old, psycopg.connect(workspace.dsn, autocommit=True) as new:
        stale = BatchLedger(old, "word_count")
        stale.acquire()
        batch = stale.begin(1)
        stale.release()
        BatchLedger(new, "word_count").acquire()
        late = pa.RecordBatch.from_pylist([{"word": "dog", "count": 41}])

        with pytest.raises(FencedError, match="another driver or attempt has taken over"):
            list(written([MergeTask(pipeline.specs[0], BatchContext(batch, workspace.dsn))], [(0, late)]))

    assert workspace.rows("SELECT count, txid FROM tidegauge_state.words") == [(1, 1)]


def test_a_task_that_runs_twice_in_one_attempt_counts_once(workspace):
    import pyarrow as pa

    pipeline = word_count(workspace.input)
    workspace.run(pipeline)
    rows = pa.RecordBatch.from_pylist([{"word": "dog", "count": 3}])
    with psycopg.connect(workspace.dsn, autocommit=True) as conn:
        ledger = BatchLedger(conn, "word_count")
        ledger.acquire()
        batch = ledger.begin(0)

        for _ in range(2):
            list(written([MergeTask(pipeline.specs[0], BatchContext(batch, workspace.dsn))], [(0, rows)]))
        ledger.commit(batch)

    assert workspace.values("words") == {"dog": {"count": 3}}


def test_a_driver_is_a_member_as_long_as_it_runs(workspace):
    workspace.land("1.txt", "dog")
    seen = []
    options = RunOptions(workspace.checkpoint, once=True)
    note = lambda batch: seen.extend(members(workspace.conn))  # noqa: E731

    Driver(word_count(workspace.input), workspace.spark, workspace.dsn, options, note).run()

    assert [(member.role, member.pipeline, member.pid, member.healthy) for member in seen] == [
        ("driver", "word_count", os.getpid(), True)
    ]
    assert members(workspace.conn) == []


def test_a_broken_membership_log_stops_no_pipeline(workspace):
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    RevisionedStream(workspace.conn, NAME).write("nonsense")
    workspace.land("2.txt", "cat")

    workspace.run(word_count(workspace.input))

    assert workspace.values("words") == {"dog": {"count": 1}, "cat": {"count": 1}}


def test_pending_input_is_reported(workspace):
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))

    reported = workspace.rows("SELECT status, progress FROM tidegauge.driver")

    assert reported == [("finished", {"pending": {"count": 0, "unit": "files", "oldest": None}})]


def test_a_file_that_lands_late_with_an_old_time_stamp_is_counted(workspace):
    """Spark by itself forgets, and then ignores, what is a week older than the newest file."""
    workspace.land("new.txt", "dog")
    workspace.run(word_count(workspace.input))
    late = workspace.land("late.txt", "cat")
    os.utime(late, (1_000_000_000, 1_000_000_000))

    workspace.run(word_count(workspace.input))

    assert workspace.values("words") == {"dog": {"count": 1}, "cat": {"count": 1}}


def test_a_step_that_raises_is_reported_as_the_reason_of_the_failure(workspace):
    words = word_count(workspace.input).feeds[0]
    calls = []

    def divide(lines):
        calls.append(lines)
        # Once on no rows, when the pipeline is checked.
        return lines if len(calls) == 1 else 1 / 0

    stream = words.stream.transform(divide)
    workspace.land("1.txt", "dog")

    with pytest.raises(ZeroDivisionError):
        workspace.run(Pipeline("word_count", [stream.group_by("word").persistent_aggregate(words.spec)]))

    assert workspace.rows("SELECT status, message FROM tidegauge.driver") == [("failed", "division by zero")]


def test_a_ledger_that_lacks_what_the_checkpoint_has_seen_gets_a_new_epoch(workspace):
    for name in ("1.txt", "2.txt"):
        workspace.land(name, "dog")
        workspace.run(word_count(workspace.input))
    ((before,),) = workspace.rows("SELECT epoch FROM tidegauge.pipeline")
    # As a copy of the data directory from after the first batch, put back.
    workspace.conn.execute("UPDATE tidegauge.pipeline SET committed_txid = 1, committed_batch_id = 0")
    workspace.land("3.txt", "dog")

    with pytest.raises(BatchOrderError):
        workspace.run(word_count(workspace.input))

    assert last_batch(workspace.checkpoint, "word_count") == LastBatch(before, 2, 1)
    assert workspace.rows(
        "SELECT reason, p.epoch = e.epoch FROM tidegauge.epoch e, tidegauge.pipeline p ORDER BY number"
    ) == [
        ("the first driver started", False),
        (
            f"the checkpoint has seen batch 2 of epoch {before!r} committed, and the ledger has not: it is an older "
            "copy",
            True,
        ),
    ]


def test_no_batch_runs_under_a_clock_a_month_ahead_and_the_status_says_why(workspace):
    feed = word_count(workspace.input).feeds[0]
    pipeline = Pipeline(
        "word_count",
        [feed.stream.group_by("word").persistent_aggregate(replace(feed.spec, ttl=timedelta(days=30)))],
    )
    workspace.land("1.txt", "dog")
    workspace.run(pipeline)
    step_clock(workspace, timedelta(days=31))
    workspace.land("2.txt", "dog")

    with pytest.raises(ClockError):
        workspace.run(pipeline)
    ((status, message),) = workspace.rows("SELECT status, message FROM tidegauge.driver")
    step_clock(workspace, timedelta())
    workspace.run(pipeline)

    assert (status, "apart: under a wrong clock keys with a ttl" in message) == ("failed", True)
    assert workspace.values("words") == {"dog": {"count": 2}}


def step_clock(workspace, ahead):
    workspace.conn.execute(
        "CREATE OR REPLACE FUNCTION tidegauge.clock() RETURNS timestamptz LANGUAGE sql VOLATILE "
        f"RETURN clock_timestamp() + interval '{ahead.total_seconds()} s'"
    )


def test_a_client_of_spark_connect_is_refused_before_anything_is_touched(tmp_path):
    """Its session has no Java process behind it, which is what tells the two apart."""
    with pytest.raises(PipelineError, match="its Spark session is a client of Spark Connect"):
        Driver(word_count(tmp_path), object(), "", RunOptions(tmp_path / "checkpoint")).run()
