"""A Spark cluster on this machine: a standalone master and two workers that have no access to the checkout."""

import ctypes
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.java_options import archived
from tidegauge.pipelines.embedded.java import java_home

SPARK_HOME = Path(pyspark.__file__).parent
PR_SET_PDEATHSIG = 1
MAX_WAIT_SECONDS = 180
SLOTS = 2  # of each worker
EXECUTOR = "CoarseGrainedExecutorBackend"


def wait_for(what: str, poll: Callable[[], Any], seconds: float = MAX_WAIT_SECONDS) -> Any:
    """Return the first true result of `poll`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := poll():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {seconds} s")


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Daemon:
    """A master or a worker, with a folder of its own, no PYTHONPATH and none of this project's variables."""

    def __init__(self, folder: Path, *words: str) -> None:
        folder.mkdir()
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = psutil.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *words],
                cwd=folder,
                env={
                    "PATH": os.defpath,
                    "JAVA_HOME": java_home(),
                    "JAVA_TOOL_OPTIONS": os.environ["JAVA_TOOL_OPTIONS"],
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_DIRS": str(folder),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": " ".join(archived()),
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_parent,
            )

    def find_in_log(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, self.log.read_text(errors="replace"))

    def wait_for_log(self, pattern: str) -> re.Match[str]:
        return wait_for(f"{pattern!r} in {self.log.read_text()[-2000:]}", lambda: self.find_in_log(pattern))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """Kill it with all its children; it would not wait for them itself."""
        family = [*self.process.children(recursive=True), self.process] if self.process.is_running() else []
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family)


class Cluster:
    """A master on a free port and two workers. `stop` kills each process by its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Daemon] = []
        self.workers: list[Daemon] = []
        address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        try:
            self._master = self._start("master", "org.apache.spark.deploy.master.Master", *address)
            self.url = self._master.wait_for_log(r"Starting Spark master at (spark://\S+)")[1]
            self.complete()
        except BaseException:
            self.stop()
            raise

    def complete(self) -> None:
        """Start workers until there are two."""
        self.workers = [worker for worker in self.workers if worker.process.is_running()]
        new = [self._start_worker() for _ in range(2 - len(self.workers))]
        for worker in new:
            worker.wait_for_log("Successfully registered with master")
        self.workers += new

    def executors(self) -> dict[int, Daemon]:
        """Return the running executors, process id to the worker that started it."""
        return {
            child.pid: worker
            for worker in self.workers
            if worker.process.is_running()
            for child in worker.process.children()
            if EXECUTOR in " ".join(_command(child))
        }

    def stop(self) -> None:
        for daemon in reversed(self._started):
            daemon.kill_all()

    def _start_worker(self) -> Daemon:
        limits = ["--cores", str(SLOTS), "--memory", "1g", "--work-dir", str(self.folder / "work")]
        address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        name = f"worker-{len(self._started)}"
        return self._start(name, "org.apache.spark.deploy.worker.Worker", *address, *limits, self.url)

    def _start(self, name: str, *words: str) -> Daemon:
        daemon = Daemon(self.folder / name, *words)
        self._started.append(daemon)
        return daemon


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
