"""The secret key of an installation that was given none: made once, kept in the data folder, readable by its owner."""

import os
import secrets
import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def kept_secret_key(path: Path) -> str:
    """Return the key in `path`, made if absent. Processes that start at once all get the same one."""
    try:
        if not path.exists():
            _make(path)
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"secret key file {str(path)!r}: {error.strerror}; set SECRET_KEY, or TIDEMARK_HOME to a folder "
            "that you can write to"
        ) from error


def _make(path: Path) -> None:
    # Root's embedded servers run as another user, who has to pass through the folder.
    path.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    # mkstemp gives mode 600; a link never replaces the key that another process made meanwhile.
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        Path(draft).unlink()
