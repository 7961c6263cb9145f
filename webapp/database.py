"""DATABASE_URL as Django wants it: a URL or a conninfo string, whatever libpq reads."""

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
