"""Child processes of a command: each writes its own log, stops on request, and ends when the parent is killed.

This module does not import Django, because benchmarks use it, too.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG_LINES = 15
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Child:
    """A child process in its own session, so that Ctrl-C reaches only the parent.

    log: file for its output. stop_seconds: how long it may take to stop before it is killed. folder: its working
    directory; by default that of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        stop_seconds: float = 20.0,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._stop_seconds = stop_seconds
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | dict(environ or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Terminate it, wait, and kill its process group if it does not end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self._stop_seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def last_lines(self) -> str:
        """Return the end of its log, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])


def end_with_parent() -> None:
    """Called in a new child: on Linux it gets SIGTERM when its parent is killed, so that it does not keep its port."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
