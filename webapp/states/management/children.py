"""Child processes of a command: started with a log of their own, stopped in order, gone when the parent is."""

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
    """A named child process in a session of its own, so that Ctrl-C reaches the parent alone.

    log: where its output goes. patience: seconds from the request to stop to the end by force.
    """

    def __init__(self, name: str, words: Sequence[str], log: Path, patience: float = 20.0) -> None:
        self.name = name
        self.log = log
        self._patience = patience
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                words,
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
        """Return how it ended, or None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end, wait, and end its whole group if it does not."""
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
    # Even if the parent is killed outright, no server is left behind on its port.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
