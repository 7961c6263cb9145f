"""Processes of the soak: the driver and other commands of `manage.py`, web, events and the Celery worker."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from pipelines.embedded.data_dir import LOOPBACK, REPOSITORY, free_port
from tests.pipelines.cluster.spark_cluster import end_with_parent

# How a command says what a person must do.
REFUSAL = "CommandError: "
# Without a main module, which each executor would import again.
RUN = "from tests.soak.manage import main; main()"
STOP_SECONDS = 60.0
LONGEST_COMMAND_SECONDS = 180.0


class Process:
    """A program of ours in a process of its own, with its output in a file."""

    def __init__(self, name: str, words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._start = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, *words],
                cwd=REPOSITORY,
                env=os.environ | environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def exit_code(self) -> int | None:
        return self.process.poll()

    def output(self) -> str:
        """Return what this process has written, not an earlier one of the same log."""
        return self.log.read_bytes()[self._start :].decode(errors="replace")

    def refusal(self) -> str:
        """Return the error that ended a command, or the end of its output."""
        said = [line for line in self.output().splitlines() if line.strip()]
        errors = [line.partition(REFUSAL)[2] for line in said if REFUSAL in line]
        return errors[-1] if errors else " | ".join(said[-3:])[-600:]

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it alone; what it has started may run on."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill_all()

    def kill_all(self) -> None:
        """Kill it with all that it has started."""
        family = []
        with suppress(psutil.NoSuchProcess):
            leader = psutil.Process(self.pid)
            family = [*leader.children(recursive=True), leader]
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait()


class Commands:
    """Starts the commands of a pipeline. environ: what all of them get."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder, self.environ = folder, dict(environ)
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, *words: str, **environ: str) -> Process:
        return Process(name, ["-c", RUN, *words], self.environ | environ, self.folder / f"{name}.log")

    def run(self, name: str, *words: str, **environ: str) -> Process:
        """Run a command to its end. Raises TimeoutExpired."""
        process = self.start(name, *words, **environ)
        try:
            process.process.wait(LONGEST_COMMAND_SECONDS)
        finally:
            process.kill_all()
        return process

    def serve(self, name: str, interface: str, application: str) -> tuple[Process, str]:
        """Start granian; return it with its URL."""
        port = free_port()
        words = ["-m", "granian", "--interface", interface, "--host", LOOPBACK, "--port", str(port)]
        more = ["--http", "1", "--no-ws"] if interface == "asgi" else ["--blocking-threads", "8"]
        process = Process(name, [*words, *more, application], self.environ, self.folder / f"{name}.log")
        return process, f"http://{LOOPBACK}:{port}"


def wait_until(poll, seconds: float, pause: float = 0.02) -> bool:
    """Return whether `poll` became true in time."""
    deadline = time.monotonic() + seconds
    while not poll():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
