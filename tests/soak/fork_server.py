"""Fork server: a process that has everything imported, off which commands and executors are forked.

A start from nothing takes seconds, most of them imports. Drivers ask the same server as the soak does, which Python's
fork server leaves room for and does not do by itself; and they are killed while they ask.
"""

import errno
import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing import forkserver, reduction
from typing import Any
from unittest.mock import patch

# pyarrow imports pandas at its first computation.
PRELOADED = [
    "tests.soak.fork_server",
    "tests.soak.manage",
    "tests.soak.django_apps",
    "tidegauge.webapp.commands.management.commands.run_pipeline",
    "tidegauge.pipelines.spark.session",
    "pandas",
]

FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(PRELOADED)

_received = reduction.recvfds


def _received_or_aborted(*args: Any) -> Any:
    """The server goes on after an aborted connection, and ends at one that is closed without a word."""
    try:
        return _received(*args)
    except EOFError as error:
        raise OSError(errno.ECONNABORTED, "killed while it asked for a fork") from error


reduction.recvfds = _received_or_aborted


def start(environ: Mapping[str, str]) -> None:
    """Start the server with these variables, which Django's settings are made of."""
    with patch.dict(os.environ, environ):
        forkserver.ensure_running()


def stop() -> None:
    """Stop it, so that the next run can start one with other variables."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        os.waitpid(server._forkserver_pid, 0)
        server._forkserver_pid = None


def use_the_server_of_the_parent() -> None:
    """In a process that was forked off the server: have its own forks served there too."""
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]
