"""What people see of a driver that waits, and what it heeds: it restarts, rests, goes on and gives way."""

import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime

import psycopg
import pytest

from pipelines import driver as driver_module
from pipelines.driver import Driver, RunOptions
from pipelines.errors import PipelineError, PipelinePausedError
from pipelines.jobs.word_count import word_count
from state_backends import driver_status
from state_backends.errors import FencedError

pytestmark = pytest.mark.spark

SOON = 60.0  # seconds in which anything that is not stuck has happened, on a machine that does much else


class Driving:
    """A driver in a thread of its own. raised: what ended it, None where nothing went wrong."""

    def __init__(self, workspace, pipeline, on_batch=None, **options):
        self.raised = None
        run_options = RunOptions(workspace.checkpoint, **options)
        self.driver = Driver(pipeline, workspace.spark, workspace.dsn, run_options, on_batch)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self):
        self.driver.stop()
        self.join()

    def join(self):
        self._thread.join(SOON)
        assert not self._thread.is_alive()

    def _run(self):
        try:
            self.driver.run()
        except Exception as error:
            self.raised = error


@contextmanager
def driving(workspace, **options):
    running = Driving(workspace, word_count(workspace.input, files_per_batch=1), **options)
    try:
        yield running
    finally:
        running.end()


def wait_until(condition):
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def status(workspace):
    return workspace.rows("SELECT status FROM tidemark.driver")


def break_words(workspace):
    """From here on the state takes no row, as a full disk or a lost right would have it."""
    workspace.conn.execute("ALTER TABLE tidemark_state.words ADD CONSTRAINT broken CHECK (count < 0) NOT VALID")


def mend_words(workspace):
    workspace.conn.execute("ALTER TABLE tidemark_state.words DROP CONSTRAINT broken")


def counted(workspace, **words):
    return lambda: workspace.values("words") == {word: {"count": count} for word, count in words.items()}


@pytest.fixture
def filled(workspace):
    """A pipeline that has counted one dog."""
    workspace.land("1.txt", "dog")
    workspace.run(word_count(workspace.input))
    return workspace


class TestRestart:
    def test_a_driver_that_will_try_again_holds_the_pipeline_and_says_when_and_why(self, filled):
        break_words(filled)
        filled.land("2.txt", "cat")

        with driving(filled, max_failures=5):
            wait_until(lambda: status(filled) == [("restarting",)])
            ((held, failures, most, next_try_at, message),) = filled.rows(
                "SELECT tidemark.has_driver('word_count'), failures, max_failures, next_try_at, message "
                "FROM tidemark.driver"
            )
            mend_words(filled)
            wait_until(counted(filled, dog=1, cat=1))

        assert (held, most) == (True, 5)
        assert failures >= 1
        assert (next_try_at - datetime.now(UTC)).total_seconds() < 60
        assert message.startswith("psycopg.errors.CheckViolation")
        assert filled.rows("SELECT status, message, failures, next_try_at FROM tidemark.driver") == [
            ("stopped", "", 0, None)
        ]

    def test_it_gives_up_after_the_failures_it_was_allowed_and_says_why(self, filled, monkeypatch):
        monkeypatch.setattr(driver_module, "FIRST_PAUSE_SECONDS", 0.05)
        break_words(filled)
        filled.land("2.txt", "cat")

        with driving(filled, max_failures=2) as running:
            running.join()

        assert "CheckViolation" in str(running.raised)
        ((said, failures, message),) = filled.rows("SELECT status, failures, message FROM tidemark.driver")
        assert (said, failures) == ("failed", 2)
        assert message.startswith("psycopg.errors.CheckViolation")

    def test_fewer_failures_than_one_make_no_sense(self, tmp_path):
        with pytest.raises(PipelineError, match="max_failures must be 1 or more, got 0"):
            RunOptions(tmp_path, max_failures=0)

    def test_a_stop_is_taken_while_it_waits_for_the_next_try(self, filled, monkeypatch):
        monkeypatch.setattr(driver_module, "FIRST_PAUSE_SECONDS", 10 * SOON)
        monkeypatch.setattr(driver_module, "LONGEST_PAUSE_SECONDS", 10 * SOON)
        break_words(filled)
        filled.land("2.txt", "cat")

        with driving(filled) as running:
            wait_until(lambda: status(filled) == [("restarting",)])

        assert running.raised is None
        assert status(filled) == [("stopped",)]


class TestPause:
    def test_a_paused_driver_counts_nothing_keeps_the_pipeline_and_goes_on_when_resumed(self, filled):
        with driving(filled):
            wait_until(lambda: status(filled) == [("running",)])
            driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")
            wait_until(lambda: status(filled) == [("paused",)])
            filled.land("2.txt", "cat")
            looks = filled.rows("SELECT updated_at FROM tidemark.driver")
            wait_until(lambda: filled.rows("SELECT updated_at FROM tidemark.driver") > looks)
            held = filled.rows("SELECT tidemark.has_driver('word_count')")
            seen = filled.values("words")

            driver_status.set_desired_state(filled.conn, "word_count", paused=False, by="ann")
            wait_until(counted(filled, dog=1, cat=1))

        assert held == [(True,)]
        assert seen == {"dog": {"count": 1}}
        assert filled.rows("SELECT max(attempt), max(fence) FROM tidemark.batch") == [(1, 2)]

    def test_a_pause_is_taken_after_the_batch_at_hand_which_is_not_counted_anew(self, filled):
        for number in range(2, 9):
            filled.land(f"{number}.txt", "dog")
        paused_at = []

        def pause(batch):
            if not paused_at:
                paused_at.append(batch.txid)
                driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")

        with driving(filled, on_batch=pause):
            wait_until(lambda: status(filled) == [("paused",)])
            ((committed,),) = filled.rows("SELECT committed_batch_id FROM tidemark.pipeline")
            noted = {path.name for path in (filled.checkpoint / "commits").iterdir()}
            driver_status.set_desired_state(filled.conn, "word_count", paused=False, by="ann")
            wait_until(counted(filled, dog=8))

        assert committed < 7
        assert str(committed) in noted
        assert filled.rows("SELECT max(attempt) FROM tidemark.batch") == [(1,)]

    def test_a_driver_that_starts_while_paused_waits(self, filled):
        driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")
        filled.land("2.txt", "cat")

        with driving(filled) as running:
            wait_until(lambda: status(filled) == [("paused",)])

        assert running.raised is None
        assert status(filled) == [("stopped",)]
        assert filled.values("words") == {"dog": {"count": 1}}

    def test_a_run_through_the_input_there_is_ends_where_the_pipeline_is_paused(self, filled):
        driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")

        with pytest.raises(PipelinePausedError) as refused:
            filled.run(word_count(filled.input))

        ((since,),) = filled.rows("SELECT requested_at FROM tidemark.pipeline_wish")
        assert str(refused.value) == (
            f"pipeline 'word_count' is paused (by ann, since {since:%Y-%m-%d %H:%M:%S %Z}), so it was not run through; "
            "resume it first: manage.py pipelines resume word_count"
        )
        assert status(filled) == [("stopped",)]


class TestLoss:
    def test_an_idle_driver_that_was_overtaken_ends_by_itself(self, filled):
        with driving(filled) as running:
            wait_until(lambda: status(filled) == [("running",)])
            filled.conn.execute("UPDATE tidemark.pipeline SET fence = fence + 1")
            running.join()

        assert isinstance(running.raised, FencedError)
        assert str(running.raised) == (
            "pipeline 'word_count': this driver holds fence 2 and the ledger has fence 3; another driver has taken "
            "over, so stop this one"
        )

    def test_an_idle_driver_whose_lock_is_gone_takes_it_again(self, filled):
        with driving(filled):
            wait_until(lambda: status(filled) == [("running",)])
            filled.conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'tidemark word_count' AND datname = current_database()"
            )
            wait_until(lambda: filled.rows("SELECT fence FROM tidemark.pipeline") == [(3,)])
            filled.land("2.txt", "cat")
            wait_until(counted(filled, dog=1, cat=1))

        assert filled.values("words") == {"dog": {"count": 1}, "cat": {"count": 1}}

    def test_a_look_at_the_orders_waits_for_nobody(self, filled):
        with psycopg.connect(filled.dsn) as other:
            other.execute("SELECT FROM tidemark.pipeline FOR UPDATE")
            filled.conn.execute("SET statement_timeout = '5s'")

            orders = driver_status.read_desired_state(filled.conn, "word_count")

        assert (orders.fence, orders.held, orders.paused) == (1, False, False)


class TestMetrics:
    def test_each_batch_keeps_what_spark_measured_however_seldom_somebody_looks(self, workspace, monkeypatch):
        monkeypatch.setattr(driver_module, "WATCH_SECONDS", SOON)
        for number in range(6):
            workspace.land(f"{number}.txt", *["dog"] * (number + 1))

        workspace.run(word_count(workspace.input, files_per_batch=1))

        kept = workspace.rows(
            "SELECT txid, metrics -> 'input_rows', (metrics -> 'duration_ms' ->> 'addBatch')::bigint "
            "<= (metrics -> 'duration_ms' ->> 'triggerExecution')::bigint, "
            "metrics -> 'processed_rows_per_second' IS NOT NULL FROM tidemark.batch ORDER BY txid"
        )
        assert kept == [(txid, txid, True, True) for txid in range(1, 7)]

    def test_they_follow_the_batch_though_a_new_checkpoint_counts_from_0(self, filled, tmp_path):
        filled.checkpoint = tmp_path / "another"
        (filled.input / "1.txt").unlink()
        filled.land("2.txt", "cat", "cat")

        filled.run(word_count(filled.input), rebind=True)

        assert filled.rows("SELECT txid, batch_id, metrics -> 'input_rows' FROM tidemark.batch ORDER BY txid") == [
            (1, 0, 1),
            (2, 0, 2),
        ]

    def test_a_batch_that_was_skipped_keeps_its_own(self, filled):
        before = filled.rows("SELECT metrics FROM tidemark.batch")
        filled.forget_last_commit()

        filled.run(word_count(filled.input))

        assert filled.rows("SELECT metrics FROM tidemark.batch") == before
