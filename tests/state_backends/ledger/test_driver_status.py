import os
import socket

import psycopg
import pytest

from tidegauge.state_backends import BatchLedger, Catalog
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.batch import lock_fence
from tidegauge.state_backends.ledger.driver_status import DesiredState, read_desired_state, set_desired_state


@pytest.fixture
def name(conn, request):
    """A registered pipeline without a driver."""
    Catalog(conn).install()
    Catalog(conn).register_pipeline(request.node.name, spout="opaque")
    return request.node.name


class TestDesiredState:
    def test_at_first_a_pipeline_is_desired_to_run(self, conn, name):
        assert read_desired_state(conn, name) == DesiredState(fence=0, token="", held=False, paused=False)

    def test_it_can_be_set_before_the_first_driver(self, conn, name):
        set_desired_state(conn, name, paused=True, by="ann")

        desired = read_desired_state(conn, name)
        assert (desired.paused, desired.by, desired.since is not None) == (True, "ann", True)

    def test_setting_the_same_again_keeps_who_set_it_first(self, conn, name):
        set_desired_state(conn, name, paused=True, by="ann")
        first = read_desired_state(conn, name)

        set_desired_state(conn, name, paused=True, by="bob")

        assert read_desired_state(conn, name) == first

    def test_the_last_change_counts(self, conn, name):
        set_desired_state(conn, name, paused=True, by="ann")
        set_desired_state(conn, name, paused=False, by="bob")

        desired = read_desired_state(conn, name)
        assert (desired.paused, desired.by) == (False, "bob")

    def test_it_outlives_drivers(self, conn, name):
        set_desired_state(conn, name, paused=True, by="ann")
        ledger = BatchLedger(conn, name)
        ledger.acquire()

        desired = read_desired_state(conn, name)
        ledger.release()

        assert (desired.fence, desired.held, desired.paused) == (1, True, True)

    def test_an_unknown_pipeline_is_refused_and_has_none(self, conn, name):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            set_desired_state(conn, "nothing", paused=True, by="ann")

        assert read_desired_state(conn, "nothing") == DesiredState(fence=None, token="", held=False, paused=False)


class TestReport:
    def test_a_report_has_status_message_and_progress(self, conn, name):
        driver = "SELECT host, pid, status, message, progress FROM tidegauge.driver WHERE pipeline = %s"
        here = (socket.gethostname(), os.getpid())
        BatchLedger(conn, name).acquire()
        assert conn.execute(driver, [name]).fetchone() == (*here, "starting", "", {})

        driver_status.report(conn, name, "running", progress={"lag": 3})
        driver_status.report(conn, name, "restarting", "in 4 s")

        assert conn.execute(driver, [name]).fetchone() == (*here, "restarting", "in 4 s", {"lag": 3})

    def test_a_report_does_not_wait_for_tasks(self, conn, connect, name):
        ledger, task, driver = BatchLedger(conn, name), connect(), connect()
        ledger.acquire()
        batch = ledger.begin(0)
        driver.execute("SET lock_timeout = '2s'")

        with task.transaction():
            lock_fence(task, batch)
            driver_status.report(driver, name, "running")

        assert reported(driver, name)[0] == "running"

    def test_a_driver_reports_how_often_it_failed_and_when_it_tries_again(self, conn, name):
        ledger = BatchLedger(conn, name)
        ledger.acquire()
        (at,) = conn.execute("SELECT now()").fetchone()

        driver_status.report(conn, name, "restarting", "why", failures=2, max_failures=8, next_try_at=at)

        assert reported(conn, name) == ("restarting", "why", 2, 8, at)
        ledger.acquire()
        ledger.release()
        assert reported(conn, name) == ("starting", "", 0, None, None)


def reported(conn, name):
    return conn.execute(
        "SELECT status, message, failures, max_failures, next_try_at FROM tidegauge.driver WHERE pipeline = %s", [name]
    ).fetchone()
