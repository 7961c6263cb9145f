"""Child processes of a command: each has its own log, is stopped in order, and ends when the parent does.

Without Django, because benchmarks use it too.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
LAST_LINES = 15


class Child:
    """A named child process in its own session, so that Ctrl-C reaches the parent only.

    log: where its output goes. patience: seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, patience: float = 20.0) -> None:
        self.name = name
        self.log = log
        self._patience = patience
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Terminate it and wait; kill its process group if it does not end."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self._patience)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def last_words(self) -> str:
        """Return the end of its log, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])


def _end_with_parent() -> None:
    # Even if the parent is killed, no server keeps running on its port.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
