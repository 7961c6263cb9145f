"""Crashes: the flights pipeline, killed with SIGKILL during several batches, ends with exact states."""

import os
import random
import signal
import time

import psutil
import psycopg
import pytest

from tests.harness.process_tree import is_alive, signal_all
from tests.pipelines.driver_process import DriverProcess, open_batch
from tidegauge.pipelines.demo import compare, lay_out
from tidegauge.pipelines.jobs.flights import flights

pytestmark = pytest.mark.spark

SEED = 20130101
BATCHES = 16  # 365 days, 24 to a batch


def kill_during_batch(
    driver: DriverProcess, conn: psycopg.Connection, after: int, delay: float, *, with_spark: bool
) -> tuple[int, psutil.Process]:
    """Kill a driver `delay` seconds into batch `after` or a later one. Returns the txid, and its Java process.

    Unless `with_spark`, Java and its tasks run a moment longer and try to write.
    """
    while True:
        txid = driver.await_batch(conn, after)
        java = driver.java()
        time.sleep(delay)
        if open_batch(conn) == txid:
            signal_all(driver.pid) if with_spark else os.kill(driver.pid, signal.SIGKILL)
            driver.wait()
            return txid, java


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.soak)])
def test_after_repeated_kills_during_batches_the_states_equal_a_recount(kills, database_url, conn, tmp_path):
    lay_out(tmp_path / "input")
    chance = random.Random(SEED)
    # Spread over the input from the first batch on, and at different points within a batch.
    points = [(1 + number * BATCHES // kills, chance.uniform(0, 0.25), number % 3 > 0) for number in range(kills)]
    killed_at, javas = [], []

    for after, delay, with_spark in points:
        driver = DriverProcess(database_url, tmp_path, "--once")
        txid, java = kill_during_batch(driver, conn, after, delay, with_spark=with_spark)
        killed_at.append(txid)
        javas.append(java)
    survivor = DriverProcess(database_url, tmp_path, "--once")
    code = survivor.wait()

    assert not any(map(is_alive, javas)), "Spark's Java process outlived its driver"
    assert code == 0, survivor.log.read_text()[-3000:]
    assert len(killed_at) == kills
    retried = conn.execute("SELECT count(*) FROM tidegauge.batch WHERE attempt > 1").fetchone()
    assert retried is not None
    assert retried[0] >= kills // 2, f"killed in batches {killed_at}, of which only {retried[0]} were retried"
    compared = compare(conn, flights(tmp_path / "input").specs)
    assert {name: state["exact"] for name, state in compared.items()} == dict.fromkeys(compared, True)
    assert compared["routes"]["keys"] == 224
    assert conn.execute("SELECT sum(rows_in) FROM tidegauge.batch").fetchone() == (336_776,)
