"""The data folder: where the embedded servers keep their data, passwords and locks."""

import os
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pipelines.errors import RuntimeSetupError

REPOSITORY = Path(__file__).resolve().parents[2]


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the data folder, made if absent: `TIDEMARK_HOME`, or `.tidemark` beside `manage.py`.

    Raises RuntimeSetupError where it cannot be made.
    """
    home = Path(environ.get("TIDEMARK_HOME") or REPOSITORY / ".tidemark").resolve()
    # Root's servers run as another user, who has to pass through on the way to their own folder.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        home.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeSetupError(
            f"data folder {str(home)!r}: cannot be made ({error.strerror}); "
            "set TIDEMARK_HOME to a folder that you can write to"
        ) from error
    return home


def write_private(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write `text` so that only the owner can read it and nobody ever sees half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    draft = Path(name)
    draft.chmod(mode)
    draft.replace(path)


def password(path: Path) -> str:
    """Return the password kept in `path`; where there is none, make one that needs no quoting in a URL."""
    if not path.exists():
        write_private(path, secrets.token_urlsafe(24))
    return path.read_text(encoding="utf-8").strip()


def last_lines(path: Path, count: int = 3) -> str:
    """Return the end of a server's log as one line, for an error message."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "it left no log"
    return " | ".join(line.strip() for line in lines[-count:] if line.strip()) or "its log is empty"


# Ports on the loopback address: remembered from one start to the next, changed when somebody else took them.


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
