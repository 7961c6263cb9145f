"""A driver that waits: it restarts, pauses, resumes and gives way, and reports its status meanwhile."""

import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import psycopg
import pytest

from tests.harness.waiting import eventually
from tidegauge.pipelines.driver import driver as driver_module
from tidegauge.pipelines.driver.driver import Driver, RunOptions
from tidegauge.pipelines.errors import PipelineError, PipelinePausedError
from tidegauge.pipelines.jobs.word_count import word_count
from tidegauge.state_backends.errors import FencedError
from tidegauge.state_backends.ledger import driver_status

pytestmark = pytest.mark.spark

SOON = 60.0  # seconds; the longest wait for anything that is not stuck, on a busy machine
wait_until = partial(eventually, seconds=SOON)


class Driving:
    """A driver in a thread. raised: the error that ended it, or None."""

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


def status(workspace):
    return workspace.rows("SELECT status FROM tidegauge.driver")


def break_words(workspace):
    """Make the state refuse every row, as with a full disk or a missing privilege."""
    workspace.conn.execute("ALTER TABLE tidegauge_state.words ADD CONSTRAINT broken CHECK (count < 0) NOT VALID")


def repair_words(workspace):
    workspace.conn.execute("ALTER TABLE tidegauge_state.words DROP CONSTRAINT broken")


def counted(workspace, **words):
    return lambda: workspace.values("words") == {word: {"count": count} for word, count in words.items()}


class TestRestart:
    def test_a_driver_that_will_try_again_holds_the_pipeline_and_reports_when_and_why(self, filled):
        break_words(filled)
        filled.land("2.txt", "cat")

        with driving(filled, max_failures=5):
            wait_until(lambda: status(filled) == [("restarting",)])
            ((held, failures, most, next_try_at, message),) = filled.rows(
                "SELECT tidegauge.has_driver('word_count'), failures, max_failures, next_try_at, message "
                "FROM tidegauge.driver"
            )
            repair_words(filled)
            wait_until(counted(filled, dog=1, cat=1))

        assert (held, most) == (True, 5)
        assert failures >= 1
        assert (next_try_at - datetime.now(UTC)).total_seconds() < 60
        assert message.startswith("psycopg.errors.CheckViolation")
        assert filled.rows("SELECT status, message, failures, next_try_at FROM tidegauge.driver") == [
            ("stopped", "", 0, None)
        ]

    def test_it_fails_after_max_failures_and_reports_why(self, filled, monkeypatch):
        monkeypatch.setattr(driver_module, "FIRST_PAUSE_SECONDS", 0.05)
        break_words(filled)
        filled.land("2.txt", "cat")

        with driving(filled, max_failures=2) as running:
            running.join()

        assert "CheckViolation" in str(running.raised)
        ((reported, failures, message),) = filled.rows("SELECT status, failures, message FROM tidegauge.driver")
        assert (reported, failures) == ("failed", 2)
        assert message.startswith("psycopg.errors.CheckViolation")

    def test_max_failures_below_one_is_refused(self, tmp_path):
        with pytest.raises(PipelineError, match="max_failures must be 1 or more, got 0"):
            RunOptions(tmp_path, max_failures=0)

    def test_a_stop_takes_effect_while_it_waits_for_the_next_try(self, filled, monkeypatch):
        monkeypatch.setattr(driver_module, "FIRST_PAUSE_SECONDS", 10 * SOON)
        monkeypatch.setattr(driver_module, "LONGEST_PAUSE_SECONDS", 10 * SOON)
        break_words(filled)
        filled.land("2.txt", "cat")

        with driving(filled) as running:
            wait_until(lambda: status(filled) == [("restarting",)])

        assert running.raised is None
        assert status(filled) == [("stopped",)]


class TestPause:
    def test_a_paused_driver_counts_nothing_holds_the_pipeline_and_resumes(self, filled):
        with driving(filled):
            wait_until(lambda: status(filled) == [("running",)])
            driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")
            wait_until(lambda: status(filled) == [("paused",)])
            filled.land("2.txt", "cat")
            reported = filled.rows("SELECT updated_at FROM tidegauge.driver")
            wait_until(lambda: filled.rows("SELECT updated_at FROM tidegauge.driver") > reported)
            held = filled.rows("SELECT tidegauge.has_driver('word_count')")
            seen = filled.values("words")

            driver_status.set_desired_state(filled.conn, "word_count", paused=False, by="ann")
            wait_until(counted(filled, dog=1, cat=1))

        assert held == [(True,)]
        assert seen == {"dog": {"count": 1}}
        assert filled.rows("SELECT max(attempt), max(fence) FROM tidegauge.batch") == [(1, 2)]

    def test_a_pause_takes_effect_after_the_current_batch_which_is_not_counted_again(self, filled):
        for number in range(2, 9):
            filled.land(f"{number}.txt", "dog")
        paused_at = []

        def pause(batch):
            if not paused_at:
                paused_at.append(batch.txid)
                driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")

        with driving(filled, on_batch=pause):
            wait_until(lambda: status(filled) == [("paused",)])
            ((committed,),) = filled.rows("SELECT committed_batch_id FROM tidegauge.pipeline")
            noted = {path.name for path in (filled.checkpoint / "commits").iterdir()}
            driver_status.set_desired_state(filled.conn, "word_count", paused=False, by="ann")
            wait_until(counted(filled, dog=8))

        assert committed < 7
        assert str(committed) in noted
        assert filled.rows("SELECT max(attempt) FROM tidegauge.batch") == [(1,)]

    def test_a_driver_that_starts_while_paused_waits(self, filled):
        driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")
        filled.land("2.txt", "cat")

        with driving(filled) as running:
            wait_until(lambda: status(filled) == [("paused",)])

        assert running.raised is None
        assert status(filled) == [("stopped",)]
        assert filled.values("words") == {"dog": {"count": 1}}

    def test_a_run_with_once_ends_if_the_pipeline_is_paused(self, filled):
        driver_status.set_desired_state(filled.conn, "word_count", paused=True, by="ann")

        with pytest.raises(PipelinePausedError) as refused:
            filled.run(word_count(filled.input))

        ((since,),) = filled.rows("SELECT requested_at FROM tidegauge.pipeline_wish")
        assert str(refused.value) == (
            f"pipeline 'word_count' is paused (by ann, since {since:%Y-%m-%d %H:%M:%S %Z}), so its input was not "
            "processed; resume it first: `tidegauge pipelines resume word_count`"
        )
        assert status(filled) == [("stopped",)]


class TestLostPipeline:
    def test_an_idle_driver_that_was_fenced_off_ends_by_itself(self, filled):
        with driving(filled) as running:
            wait_until(lambda: status(filled) == [("running",)])
            filled.conn.execute("UPDATE tidegauge.pipeline SET fence = fence + 1")
            running.join()

        assert isinstance(running.raised, FencedError)
        assert str(running.raised) == (
            "pipeline 'word_count': this driver holds fence 2 and the ledger has fence 3; another driver has taken "
            "over, so stop this one"
        )

    def test_an_idle_driver_that_lost_its_lock_acquires_it_again(self, filled):
        with driving(filled):
            wait_until(lambda: status(filled) == [("running",)])
            filled.conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'tidegauge word_count' AND datname = current_database()"
            )
            wait_until(lambda: filled.rows("SELECT fence FROM tidegauge.pipeline") == [(3,)])
            filled.land("2.txt", "cat")
            wait_until(counted(filled, dog=1, cat=1))

        assert filled.values("words") == {"dog": {"count": 1}, "cat": {"count": 1}}

    def test_reading_the_desired_state_waits_for_no_lock(self, filled):
        with psycopg.connect(filled.dsn) as other:
            other.execute("SELECT FROM tidegauge.pipeline FOR UPDATE")
            filled.conn.execute("SET statement_timeout = '5s'")

            desired = driver_status.read_desired_state(filled.conn, "word_count")

        assert (desired.fence, desired.held, desired.paused) == (1, False, False)
