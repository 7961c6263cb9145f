"""SIGTERM as supervisors send it ends a driver cleanly, in the middle of a batch."""

import os
import signal

import pytest

from tests.harness.process_tree import is_alive, signal_all
from tests.harness.waiting import eventually
from tests.pipelines.driver_process import DriverProcess
from tidegauge.pipelines.demo import compare, lay_out
from tidegauge.pipelines.jobs.flights import flights

pytestmark = pytest.mark.spark


def terminate_group(driver: DriverProcess) -> None:
    """As `timeout` does, and a shell whose terminal is closed."""
    os.killpg(driver.pid, signal.SIGTERM)


def terminate_all(driver: DriverProcess) -> None:
    """As systemd does without KillMode=mixed: it ends Java, too."""
    signal_all(driver.pid, signal.SIGTERM)


def test_a_driver_that_is_terminated_in_a_batch_has_stopped_and_the_next_continues_exactly(
    database_url, conn, tmp_path
):
    lay_out(tmp_path / "input")
    left = []
    for after, terminate in ((2, terminate_group), (5, terminate_all)):
        driver = DriverProcess(database_url, tmp_path)
        driver.await_batch(conn, after)
        java = driver.java()

        terminate(driver)
        code = driver.wait()

        log = driver.log.read_text()
        assert code == 0, log[-3000:]
        # PySpark and py4j write tracebacks if Java ends before them.
        assert terminate is terminate_all or "Traceback" not in log
        assert "failed for good" not in log
        assert conn.execute("SELECT status, message FROM tidegauge.driver").fetchone() == ("stopped", "")
        left.append(conn.execute("SELECT open_txid FROM tidegauge.pipeline").fetchone())
        eventually(lambda: not is_alive(java))  # noqa: B023

    assert left[0] == (None,), "the batch was interrupted although only the driver's group was terminated"
    assert DriverProcess(database_url, tmp_path, "--once").wait() == 0
    compared = compare(conn, flights(tmp_path / "input").specs)
    assert {name: state["exact"] for name, state in compared.items()} == dict.fromkeys(compared, True)
    assert conn.execute("SELECT sum(rows_in) FROM tidegauge.batch").fetchone() == (336_776,)
