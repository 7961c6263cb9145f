"""The data folder: where the embedded servers keep their data, passwords and locks."""

import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.runtime.errors import RuntimeSetupError

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
