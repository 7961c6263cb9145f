"""A driver in a process of its own, and its writing tasks, found by their database connections."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from tests.java_options import archived
from tests.pipelines.cluster.spark_cluster import EXECUTOR, end_with_parent
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

EXECUTORS = ["spark.executor.memory=512m", *(f"spark.executor.extraJavaOptions={option}" for option in archived())]
SUBMIT = " ".join([*(f"--conf {setting}" for setting in EXECUTORS), "pyspark-shell"])


def run_word_count(folder: Path) -> list[str]:
    """Return the command that an operator runs."""
    paths = ["--input", str(folder / "input"), "--checkpoint", str(folder / "checkpoint")]
    return ["manage.py", "run_pipeline", "word_count", *paths, "--once"]


class DriverProcess:
    """A Python program that runs a pipeline. command: its arguments. environ: variables such as SPARK_MASTER."""

    def __init__(self, dsn: str, folder: Path, command: Sequence[str], cwd: Path = REPOSITORY, **environ: str) -> None:
        self.log = folder / "driver.log"
        of_tests = {"DATABASE_URL": dsn, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": SUBMIT}
        with self.log.open("wb") as log:
            self.process = psutil.Popen(
                [sys.executable, *command],
                cwd=cwd,
                env=os.environ | of_tests | environ,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_parent,
            )

    def finish(self) -> str:
        """Wait for a successful end and return the output."""
        code = self.process.wait(timeout=180)
        output = self.log.read_text()
        assert code == 0, output[-4000:]
        return output

    def check(self) -> bool:
        """Return True while it runs. Raises AssertionError with the end of its output."""
        assert self.is_running(), self.log.read_text()[-4000:]
        return True

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        if not self.is_running():
            return
        family = [*self.process.children(recursive=True), self.process]
        for member in family:
            member.kill()
        psutil.wait_procs(family)


@dataclass(frozen=True)
class Writer:
    """A task that holds a connection. executor: the process id of its JVM, None if that has ended."""

    waits: bool
    executor: int | None


def writers(conn: psycopg.Connection, state: str) -> list[Writer]:
    """Return the tasks that are connected to write a state now, each with its executor."""
    owners = _owners()
    return [Writer(waits, _executor(owners.get(port))) for waits, port in _connected(conn, state)]


def waiting(conn: psycopg.Connection, state: str) -> int:
    """Return how many tasks wait for the lock on a state."""
    return sum(waits for waits, _ in _connected(conn, state))


def _connected(conn: psycopg.Connection, state: str) -> list[tuple[bool, int]]:
    """Return for each task whether it waits for a lock, and its client port; only tasks' connections name a batch."""
    return conn.execute(
        "SELECT coalesce(wait_event_type = 'Lock', false), client_port FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name ~ %s",
        [f"^tidegauge .* {state} [0-9]+$"],
    ).fetchall()


@contextmanager
def locked(dsn: str, *states: str) -> Iterator[psycopg.Connection]:
    """Lock states until the end of the block, or a rollback: writing tasks wait, connected, in mid-batch."""
    with psycopg.connect(dsn) as conn:
        for state in states:
            conn.execute(f"LOCK TABLE tidegauge_state.{state} IN EXCLUSIVE MODE")
        yield conn


def _owners() -> dict[int, int]:
    """Return the process behind each local port of this machine's connections."""
    return {link.laddr.port: link.pid for link in psutil.net_connections("tcp") if link.laddr and link.pid}


def _executor(pid: int | None) -> int | None:
    try:
        parents = psutil.Process(pid).parents() if pid else []
        return next((parent.pid for parent in parents if EXECUTOR in " ".join(parent.cmdline())), None)
    except psutil.NoSuchProcess:
        return None
