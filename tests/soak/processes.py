"""Processes of the soak: the driver, other commands of `manage.py`, and the programs of services.py.

A command is forked off a process that has everything imported; with Spark it is a program, as all others are.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

import psutil

from tests.harness.process_tree import signal_all
from tests.pipelines.cluster.spark_cluster import end_with_parent
from tests.soak import fork_server
from tidegauge.pipelines.embedded.data_dir import REPOSITORY

# How a command says what a person must do.
REFUSAL = "CommandError: "
# Without a main module, which each executor would import again.
RUN = "from tests.soak.manage import main; main()"
STOP_SECONDS = 60.0
LONGEST_COMMAND_SECONDS = 400.0


class Process:
    """A process of ours, with its output in a file. It leads the process group of what it starts."""

    pid: int

    def __init__(self, name: str, log: Path) -> None:
        self.name, self.log = name, log
        log.touch()
        self._start = log.stat().st_size

    def exit_code(self) -> int | None:
        """Return how it ended, as a negative number for a signal; None as long as it runs."""
        raise NotImplementedError

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end; return whether it came in time."""
        raise NotImplementedError

    def output(self) -> str:
        """Return what this process has written, not an earlier one of the same log."""
        return self.log.read_bytes()[self._start :].decode(errors="replace")

    def refusal(self) -> str:
        """Return the error that ended a command, or the end of its output."""
        said = [line for line in self.output().splitlines() if line.strip()]
        errors = [line.partition(REFUSAL)[2] for line in said if REFUSAL in line]
        return errors[-1] if errors else " | ".join(said[-3:])[-600:]

    def signal(self, number: int) -> None:
        if self.exit_code() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it alone; what it has started may run on."""
        self.signal(signal.SIGKILL)
        self.wait()

    def kill_children(self, word: str) -> int:
        """Kill what it has started with `word` in its command line; return how many there were."""
        killed = 0
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if word in " ".join(child.cmdline()):
                        child.kill()
                        killed += 1
        return killed

    def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if not self.wait(STOP_SECONDS):
            self.kill_all()

    def kill_all(self) -> None:
        """Kill it with all that it has started, also if it has ended itself."""
        signal_all(self.pid)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class Program(Process):
    """A Python program started from nothing."""

    def __init__(self, name: str, words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        super().__init__(name, log)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                cwd=REPOSITORY,
                env=os.environ | environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.exit_code() is not None


class Command(Process):
    """A command of `manage.py`, forked off a process that has everything imported."""

    def __init__(self, name: str, words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        super().__init__(name, log)
        self._process = fork_server.FORK.Process(target=run_command, args=(words, os.environ | environ, log))
        self._process.start()
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> bool:
        self._process.join(seconds)
        return self.exit_code() is not None


def run_command(words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
    """Run a command of `manage.py` in this process, which was forked for it."""
    from tests.soak.manage import main

    fork_server.use_the_server_of_the_parent()
    os.setpgid(0, 0)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with log.open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())
    os.chdir(REPOSITORY)
    os.environ.update(environ)
    sys.argv[1:] = words
    main()


def _end_with_parent() -> None:
    """The parent is the process that has asked for the fork."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


class Commands:
    """Starts the commands of a pipeline. environ: what all of them get."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder, self.environ = folder, dict(environ)
        self._started: list[Process] = []
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Kill what runs, and what it has started."""
        for process in self._started:
            process.kill_all()

    def start(self, name: str, *words: str, **environ: str) -> Process:
        log, variables = self.folder / f"{name}.log", self.environ | environ
        if variables.get("SOAK_SPARK"):
            process: Process = Program(name, ["-c", RUN, *words], variables, log)
        else:
            process = Command(name, words, variables, log)
        self._started.append(process)
        return process

    def run(self, name: str, *words: str, **environ: str) -> Process:
        """Run a command to its end. Raises TimeoutError."""
        process = self.start(name, *words, **environ)
        try:
            if not process.wait(LONGEST_COMMAND_SECONDS):
                raise TimeoutError(f"{words!r} has not ended: {process.output()[-1500:]}")
        finally:
            process.kill_all()
        return process


def wait_until(poll, seconds: float, pause: float = 0.02) -> bool:
    """Return whether `poll` became true in time."""
    deadline = time.monotonic() + seconds
    while not poll():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True
