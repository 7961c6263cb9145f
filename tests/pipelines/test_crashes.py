"""Crashes: the flights pipeline, killed with SIGKILL during several batches, ends with exact states."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tidegauge.pipelines.demo import compare, lay_out
from tidegauge.pipelines.embedded.data_dir import REPOSITORY
from tidegauge.pipelines.jobs.flights import flights

pytestmark = pytest.mark.spark

SEED = 20130101
LIMITS = ["--files-per-batch", "24", "--once"]
BATCHES = 16  # 365 days, 24 to a batch
PATIENCE_SECONDS = 120


class Victim:
    """The pipeline in a process, started as an operator starts it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        folders = ["--input", str(folder / "input"), "--checkpoint", str(folder / "checkpoint")]
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "run_pipeline", "flights", *folders, *LIMITS],
                cwd=REPOSITORY,
                env=os.environ | {"DATABASE_URL": dsn},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self, *, with_spark: bool) -> None:
        """Kill the driver; unless `with_spark`, the JVM and its tasks run a moment longer and try to write."""
        os.kill(self._process.pid, signal.SIGKILL)
        if with_spark:
            self.kill_process_group()
        self._process.wait()

    def kill_process_group(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def finish(self) -> int:
        return self._process.wait(timeout=300)


def open_batch(conn: psycopg.Connection) -> int | None:
    if conn.execute("SELECT to_regclass('tidegauge.pipeline')").fetchone() == (None,):
        return None
    row = conn.execute("SELECT open_txid FROM tidegauge.pipeline WHERE name = 'flights'").fetchone()
    return row[0] if row else None


def kill_during_batch(victim: Victim, conn: psycopg.Connection, after: int, delay: float, *, with_spark: bool) -> int:
    """Wait until batch `after` or a later one is open, wait `delay` seconds, and kill if it is still open."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert victim.is_running(), f"the pipeline ended before it could be killed:\n{victim.log.read_text()[-3000:]}"
        txid = open_batch(conn)
        if txid is not None and txid >= after:
            time.sleep(delay)
            if open_batch(conn) == txid:
                victim.kill(with_spark=with_spark)
                return txid
        time.sleep(0.005)
    raise AssertionError(f"no batch from {after} on was open within {PATIENCE_SECONDS} s")


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.soak)])
def test_after_repeated_kills_during_batches_the_states_equal_a_recount(kills, database_url, conn, tmp_path):
    lay_out(tmp_path / "input")
    chance = random.Random(SEED)
    # Spread over the input from the first batch on, and at different points within a batch.
    points = [(1 + number * BATCHES // kills, chance.uniform(0, 0.25), number % 3 > 0) for number in range(kills)]
    victims, killed_at = [], []

    for after, delay, with_spark in points:
        victims.append(Victim(database_url, tmp_path))
        killed_at.append(kill_during_batch(victims[-1], conn, after, delay, with_spark=with_spark))
    survivor = Victim(database_url, tmp_path)
    code = survivor.finish()
    for victim in victims:
        victim.kill_process_group()

    assert code == 0, survivor.log.read_text()[-3000:]
    assert len(killed_at) == kills
    retried = conn.execute("SELECT count(*) FROM tidegauge.batch WHERE attempt > 1").fetchone()
    assert retried is not None
    assert retried[0] >= kills // 2, f"killed in batches {killed_at}, of which only {retried[0]} were retried"
    compared = compare(conn, flights(tmp_path / "input").specs)
    assert {name: state["exact"] for name, state in compared.items()} == dict.fromkeys(compared, True)
    assert compared["routes"]["keys"] == 224
    assert conn.execute("SELECT sum(rows_in) FROM tidegauge.batch").fetchone() == (336_776,)
