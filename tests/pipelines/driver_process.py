"""The flights pipeline in a process of its own, started as an operator starts it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import psycopg

from tests.harness.process_tree import family
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

LIMITS = ["--files-per-batch", "24"]
PATIENCE_SECONDS = 300


class DriverProcess:
    """`tidegauge run flights` as the leader of its process group."""

    def __init__(self, dsn: str, folder: Path, *options: str) -> None:
        folders = ["--input", str(folder / "input"), "--checkpoint", str(folder / "checkpoint")]
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "run_pipeline", "flights", *folders, *LIMITS, *options],
                cwd=REPOSITORY,
                env=os.environ | {"DATABASE_URL": dsn},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def is_running(self) -> bool:
        return self._process.poll() is None

    def java(self) -> psutil.Process:
        [java] = [member for member in family(self.pid) if member.name() == "java"]
        return java

    def wait(self) -> int:
        """Return its exit code, which is negative after a signal."""
        return self._process.wait(timeout=300)

    def await_batch(self, conn: psycopg.Connection, after: int) -> int:
        """Wait until batch `after` or a later one is open; return its txid."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            assert self.is_running(), f"the pipeline ended before it could be killed:\n{self.log.read_text()[-3000:]}"
            txid = open_batch(conn)
            if txid is not None and txid >= after:
                return txid
            time.sleep(0.005)
        raise AssertionError(f"no batch from {after} on was open within {PATIENCE_SECONDS} s")


def open_batch(conn: psycopg.Connection) -> int | None:
    if conn.execute("SELECT to_regclass('tidegauge.pipeline')").fetchone() == (None,):
        return None
    row = conn.execute("SELECT open_txid FROM tidegauge.pipeline WHERE name = 'flights'").fetchone()
    return row[0] if row else None
