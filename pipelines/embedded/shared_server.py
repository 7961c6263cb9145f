"""Keeps a server running while at least one process uses it.

Every process that uses an embedded server holds a shared lock on the file `<name>.lease`. A process that leaves tries
to make the lock exclusive: only the last one can, and it stops the server. The kernel drops the locks of a killed
process, so there is nothing to clean up: the server continues and the next process finds it.
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
    """A server that can be shared."""

    name: str
    home: Path
    stop_signal: signal.Signals

    def process(self) -> psutil.Process | None:
        """Return the running server; None if there is none."""

    def start(self) -> None:
        """Start the server and wait until it answers. Raises RuntimeSetupError if it does not."""

    def url(self) -> str:
        """Return the running server's URL; waits until it answers."""


class SharedServer:
    """One process's use of a server: `join` starts or finds it, `leave` stops it if no other process uses it."""

    def __init__(self, server: Server):
        self._server = server
        self._lock_file: int | None = None
        self._owner_pid = 0

    def join(self) -> str:
        """Return the URL of the server, which is started if it is not running."""
        with self._start_lock():
            self._acquire()
            try:
                if self._server.process() is None:
                    self._server.start()
                return self._server.url()
            except BaseException:
                self._release()
                raise

    def leave(self) -> None:
        """Stop using the server. Does nothing in a forked child, because only its parent has joined."""
        if self._lock_file is None or self._owner_pid != os.getpid():
            return
        with self._start_lock():
            self._release()

    def stop_if_unused(self) -> bool:
        """Stop the server if all its users were killed; return False if a process still uses it."""
        with self._start_lock():
            self._acquire()
            return self._release()

    def _acquire(self) -> None:
        self._lock_file = os.open(self._server.home / f"{self._server.name}.lease", os.O_RDWR | os.O_CREAT, 0o600)
        self._owner_pid = os.getpid()
        fcntl.flock(self._lock_file, fcntl.LOCK_SH)

    def _release(self) -> bool:
        """Release the lock; if this was the last user, stop the server and return True."""
        if self._lock_file is None:
            return False
        try:
            last = _is_only_holder(self._lock_file)
            if last:
                self._stop()
            return last
        finally:
            os.close(self._lock_file)
            self._lock_file = None

    def _stop(self) -> None:
        process = self._server.process()
        if process is None:
            return
        with suppress(psutil.NoSuchProcess):
            process.send_signal(self._server.stop_signal)
            if not _ends(process):
                # Written, not raised, because this runs at exit, where no caller could handle an error.
                sys.stderr.write(f"{self._server.name}: process {process.pid} does not stop in {STOP_SECONDS} s\n")

    @contextmanager
    def _start_lock(self) -> Iterator[None]:
        """Let one process at a time check whether the server runs, and start or stop it."""
        lock = os.open(self._server.home / f"{self._server.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _is_only_holder(lock_file: int) -> bool:
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ends(process: psutil.Process) -> bool:
    """Wait for the end of a process, which may not be a child of ours; return whether it ended."""
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        try:
            process.wait(0.05)
        except psutil.TimeoutExpired:
            # An orphan stays a zombie until process 1 reaps it; it has ended.
            if process.status() != psutil.STATUS_ZOMBIE:
                continue
        return True
    return False


def process_in(folder: Path, pid_file: Path) -> psutil.Process | None:
    """Return the live process that `pid_file` names, if its working folder is `folder`.

    The folder is compared because a pid file outlives its process, so another process may have the id by now; only the
    server has its data folder as working folder.
    """
    try:
        process = psutil.Process(int(pid_file.read_text(encoding="ascii").split()[0]))
        is_server = process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == folder.resolve()
    except (FileNotFoundError, ValueError, IndexError, OverflowError, psutil.Error):
        return None
    return process if is_server else None
