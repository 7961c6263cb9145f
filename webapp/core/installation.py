"""DATABASE_URL as Django wants it: a URL or a conninfo string, whatever libpq reads."""

import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

DJANGO_NAMES = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


def database(conninfo: str, **options: Any) -> dict[str, Any]:
    """Return the entry of DATABASES for a PostgreSQL address; what Django has no name for goes to OPTIONS.

    An empty address gives no database, so that commands which need none run without one.
    """
    if not conninfo:
        return {"ENGINE": "django.db.backends.dummy"}
    parts = _parsed(conninfo)
    named = {DJANGO_NAMES[part]: str(parts.pop(part)) for part in list(parts) if part in DJANGO_NAMES}
    return {"ENGINE": "django.db.backends.postgresql", **named, "OPTIONS": parts | options}


def _parsed(conninfo: str) -> dict[str, Any]:
    try:
        return {part: value for part, value in conninfo_to_dict(conninfo).items() if value is not None}
    except psycopg.ProgrammingError as error:
        # Without the value, which holds a password.
        raise ImproperlyConfigured(
            "DATABASE_URL is no PostgreSQL address; write it as postgresql://user:password@host:5432/name"
        ) from error


# The secret key of an installation that was given none: made once, kept in the data folder, readable by its owner.


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
