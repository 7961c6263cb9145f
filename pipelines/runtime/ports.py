"""Ports on the loopback address: remembered from one start to the next, changed when somebody else took them."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from pipelines.runtime.errors import RuntimeSetupError
from pipelines.runtime.home import write_private

LOOPBACK = "127.0.0.1"
ATTEMPTS = 3
PAUSE_SECONDS = 0.5


def free_port() -> int:
    """Return a port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Return whether a server could listen on `port` now."""
    with socket.socket() as probe:
        # As the servers do: connections that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError):
            return False
    return True


def start_on_a_port(start: Callable[[int], None], port_file: Path) -> None:
    """Call `start(port)` with the port of last time, or with a fresh one where that is taken or fails.

    Between finding a free port and listening on it somebody may be faster, hence more than one attempt.
    Raises what the last attempt raised.
    """
    port = _port_of_last_time(port_file)
    for attempts_left in reversed(range(ATTEMPTS)):
        # Noted first: whoever finds the server running after we were killed looks its port up here.
        write_private(port_file, str(port))
        try:
            return start(port)
        except RuntimeSetupError:
            if not attempts_left:
                raise
        time.sleep(PAUSE_SECONDS)
        port = free_port()


def _port_of_last_time(port_file: Path) -> int:
    try:
        port = int(port_file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return free_port()
    return port if port > 0 and is_free(port) else free_port()
