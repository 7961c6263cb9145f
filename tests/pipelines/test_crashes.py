"""A driver that is killed or terminated during batches, as supervisors do it: the flights end as a recount of them."""

import os
import random
import signal
import time

import psutil
import psycopg
import pytest

from tests.harness.process_tree import is_alive, signal_all
from tests.harness.waiting import eventually
from tests.pipelines.driver_process import DriverProcess, open_batch
from tidegauge.pipelines.demo import compare, lay_out
from tidegauge.pipelines.jobs.flights import flights

pytestmark = pytest.mark.spark

SEED = 20130101
BATCHES = 16  # 365 days, 24 to a batch


class Kill:
    """SIGKILL `delay` seconds into a batch. Unless `with_spark`, Java and its tasks live on and try to write."""

    def __init__(self, delay: float, *, with_spark: bool) -> None:
        self._delay, self._with_spark = delay, with_spark
        self.options = ["--once"]

    def __call__(self, driver: DriverProcess, conn: psycopg.Connection, after: int) -> psutil.Process:
        """End a driver in batch `after` or a later one. Returns its Java process."""
        while True:
            txid = driver.await_batch(conn, after)
            java = driver.java()
            time.sleep(self._delay)
            if open_batch(conn) == txid:
                signal_all(driver.pid) if self._with_spark else os.kill(driver.pid, signal.SIGKILL)
                driver.wait()
                return java


class Stop:
    """SIGTERM in a batch: the driver ends cleanly.

    all_processes: as systemd does without KillMode=mixed, so Java ends, too; else only the driver's group, as `timeout`
    does, and a shell whose terminal is closed.
    """

    def __init__(self, *, all_processes: bool) -> None:
        self._all = all_processes
        self.options: list[str] = []

    def __call__(self, driver: DriverProcess, conn: psycopg.Connection, after: int) -> psutil.Process:
        driver.await_batch(conn, after)
        java = driver.java()
        signal_all(driver.pid, signal.SIGTERM) if self._all else os.killpg(driver.pid, signal.SIGTERM)
        code = driver.wait()

        log = driver.log.read_text()[-3000:]
        assert code == 0, log
        # PySpark and py4j write tracebacks if Java ends before them.
        assert self._all or "Traceback" not in log
        assert "failed for good" not in log
        assert conn.execute("SELECT status, message FROM tidegauge.driver").fetchone() == ("stopped", "")
        assert self._all or open_batch(conn) is None, "the batch was interrupted although only the group was terminated"
        eventually(lambda: not is_alive(java))
        return java


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.soak)])
def test_after_kills_and_stops_during_batches_the_states_equal_a_recount(kills, database_url, conn, tmp_path):
    lay_out(tmp_path / "input")
    chance = random.Random(SEED)
    # Spread over the input from the first batch on, and at different points within a batch.
    ends = [
        (1 + number * BATCHES // kills, Kill(chance.uniform(0, 0.25), with_spark=number % 3 > 0))
        for number in range(kills)
    ]
    ends += [(3, Stop(all_processes=False)), (6, Stop(all_processes=True))]
    javas = []

    for after, end in sorted(ends, key=lambda each: each[0]):
        driver = DriverProcess(database_url, tmp_path, *end.options)
        javas.append(end(driver, conn, after))
        driver.log.unlink()
    survivor = DriverProcess(database_url, tmp_path, "--once")
    code = survivor.wait()

    assert not any(map(is_alive, javas)), "Spark's Java process outlived its driver"
    assert code == 0, survivor.log.read_text()[-3000:]
    [(retried,)] = conn.execute("SELECT count(*) FROM tidegauge.batch WHERE attempt > 1").fetchall()
    assert retried >= kills // 2
    compared = compare(conn, flights(tmp_path / "input").specs)
    assert {name: state["exact"] for name, state in compared.items()} == dict.fromkeys(compared, True)
    assert compared["routes"]["keys"] == 224
    assert conn.execute("SELECT sum(rows_in) FROM tidegauge.batch").fetchone() == (336_776,)
