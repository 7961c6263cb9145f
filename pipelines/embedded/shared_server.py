"""A server that lives as long as somebody uses it.

Every process that uses an embedded server holds a shared lock on the server's lease file. Who leaves tries to make
the lock exclusive: that works for the last one only, who stops the server. The kernel drops the locks of a killed
process, so nothing has to be cleaned up after it: its server runs on and the next process finds it.
"""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil

STOP_SECONDS = 60.0


class Server(Protocol):
    """What a lease needs to know of a server."""

    name: str
    home: Path
    stop_signal: signal.Signals

    def process(self) -> psutil.Process | None:
        """Return the running server; None if there is none."""

    def start(self) -> None:
        """Start the server and wait until it answers; RuntimeSetupError if it does not."""

    def url(self) -> str:
        """Return where the running server is to be reached, waiting until it answers."""


class SharedServer:
    """One process's share in a server: `join` starts or finds it, `leave` stops it if nobody else is left."""

    def __init__(self, server: Server):
        self._server = server
        self._lease: int | None = None
        self._holder = 0

    def join(self) -> str:
        """Return the URL of the server, which is started if it does not run yet."""
        with self._start_lock():
            self._take()
            try:
                if self._server.process() is None:
                    self._server.start()
                return self._server.url()
            except BaseException:
                self._give_back()
                raise

    def leave(self) -> None:
        """Give the share back; a forked child, which only inherited it, has none to give."""
        if self._lease is None or self._holder != os.getpid():
            return
        with self._start_lock():
            self._give_back()

    def stop_if_unused(self) -> bool:
        """Stop the server if its users were all killed; return False where one is left."""
        with self._start_lock():
            self._take()
            return self._give_back()

    def _take(self) -> None:
        self._lease = os.open(self._server.home / f"{self._server.name}.lease", os.O_RDWR | os.O_CREAT, 0o600)
        self._holder = os.getpid()
        fcntl.flock(self._lease, fcntl.LOCK_SH)

    def _give_back(self) -> bool:
        """Return whether this was the last share, and the server is therefore stopped."""
        if self._lease is None:
            return False
        try:
            last = _nobody_else_holds(self._lease)
            if last:
                self._stop()
            return last
        finally:
            os.close(self._lease)
            self._lease = None

    def _stop(self) -> None:
        process = self._server.process()
        if process is None:
            return
        with suppress(psutil.NoSuchProcess):
            process.send_signal(self._server.stop_signal)
            if not _ends(process):
                # On the way out there is nobody to raise to.
                sys.stderr.write(f"{self._server.name}: process {process.pid} does not stop in {STOP_SECONDS} s\n")

    @contextmanager
    def _start_lock(self) -> Iterator[None]:
        """Let one process at a time find out whether the server runs, and start or stop it."""
        lock = os.open(self._server.home / f"{self._server.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _nobody_else_holds(lease: int) -> bool:
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ends(process: psutil.Process) -> bool:
    """Wait for the end of a process, a child of ours or not; return whether it came."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            process.wait(0.05)
        except psutil.TimeoutExpired:
            # An orphan stays a zombie until the machine's first process looks after it; for us it has ended.
            if process.status() != psutil.STATUS_ZOMBIE:
                continue
        return True
    return False


def process_in(folder: Path, pid_file: Path) -> psutil.Process | None:
    """Return the live process that `pid_file` names, if it really works in `folder`.

    A pid file outlives its process and the number may be somebody else's by now; both servers make their data
    folder their working folder, which nobody else does.
    """
    try:
        process = psutil.Process(int(pid_file.read_text(encoding="ascii").split()[0]))
        serves = process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder.resolve()
    except (FileNotFoundError, ValueError, IndexError, OverflowError, psutil.Error):
        return None
    return process if serves else None
