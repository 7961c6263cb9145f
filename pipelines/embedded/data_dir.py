"""The data folder of the embedded servers: their data, passwords, locks, logs and ports."""

import atexit
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tidegauge.pipelines.errors import RuntimeSetupError

# The package `tidegauge`. Links are not resolved, because in a checkout `tidegauge/pipelines` is one.
PACKAGE = Path(__file__).absolute().parents[2]
# The checkout, or where pip has installed the package.
REPOSITORY = PACKAGE.parent

LOOPBACK = "127.0.0.1"
START_ATTEMPTS = 3
PAUSE_SECONDS = 0.5


def is_checkout() -> bool:
    """Return whether this package runs from a checkout instead of an installation."""
    return (REPOSITORY / "manage.py").exists()


def project_dir() -> Path:
    """Return the base of relative paths: the checkout, or the working folder if the package is installed."""
    return REPOSITORY if is_checkout() else Path.cwd()


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the data folder, created if absent: `TIDEGAUGE_HOME`, or `.tidegauge` in the project's folder.

    Raises RuntimeSetupError if it cannot be created.
    """
    home = Path(environ.get("TIDEGAUGE_HOME") or project_dir() / ".tidegauge").resolve()
    # Others may enter it if we are root, because the servers then run as another user, whose folders are inside it.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    try:
        home.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeSetupError(
            f"data folder {str(home)!r}: cannot be created ({error.strerror}); "
            "set TIDEGAUGE_HOME to a folder that you can write to"
        ) from error
    return home


def write_private(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write `text` atomically, readable by the owner only."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    draft = Path(name)
    draft.chmod(mode)
    draft.replace(path)


def password(path: Path) -> str:
    """Return the password in `path`; if there is none, create one that needs no quoting in a URL."""
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


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Return whether a server could listen on `port` now."""
    with socket.socket() as probe:
        # Because the servers set it too: connections that are still closing do not keep them from listening.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except (OSError, OverflowError):
            return False
    return True


def start_on_a_port(start: Callable[[int], None], port_file: Path) -> None:
    """Call `start(port)` with the port of the last start, or with another one if that is taken or the start fails.

    There are several attempts, because another process may take a free port before the server listens on it.
    Raises the error of the last attempt.
    """
    port = _last_port(port_file)
    for attempts_left in reversed(range(START_ATTEMPTS)):
        # Written first, so that if we are killed, the next process finds the running server by this port.
        write_private(port_file, str(port))
        try:
            return start(port)
        except RuntimeSetupError:
            if not attempts_left:
                raise
        time.sleep(PAUSE_SECONDS)
        port = free_port()


def _last_port(port_file: Path) -> int:
    try:
        port = int(port_file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return free_port()
    return port if port > 0 and is_free(port) else free_port()


def folder_until_exit(prefix: str) -> Path:
    """Make a temporary folder. It is removed when this process ends, unless it is killed."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
