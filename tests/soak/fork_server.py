"""Fork server: a process that has everything imported, off which commands and executors are forked.

A start from nothing takes seconds, most of them imports. Drivers ask the same server as the soak does, which Python's
fork server leaves room for and does not do by itself; and they are killed while they ask.
"""

import errno
import multiprocessing
from multiprocessing import forkserver, reduction
from typing import Any

# pyarrow imports pandas at its first computation.
PRELOADED = ["tests.soak.fork_server", "tests.soak.manage", "pandas", "pipelines.spark"]

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


def use_the_server_of_the_parent() -> None:
    """In a process that was forked off the server: have its own forks served there too."""
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]
