"""Values that settings.py derives from this installation: DATABASES and the secret key."""

import ipaddress
import os
import re
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
REPLICAS = "DATABASE_REPLICA_URLS"
SQL = "TIDEGAUGE_SQL_URL"
# Least characters, and least different ones, of SECRET_KEY: 32 random hexadecimal digits have 128 bits, and some 14 of
# them are different.
SECRET_KEY_LENGTH, SECRET_KEY_CHARACTERS = 32, 8

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DJANGO_NAMES = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}


def database(conninfo: str, **options: Any) -> dict[str, Any]:
    """Return the entry of DATABASES for a URL or conninfo string; parts without a name in Django go to OPTIONS.

    An empty `conninfo` gives a dummy database, for commands that need none.
    """
    if not conninfo:
        return {"ENGINE": "django.db.backends.dummy"}
    parts = _parsed(conninfo)
    named = {DJANGO_NAMES[part]: str(parts.pop(part)) for part in list(parts) if part in DJANGO_NAMES}
    return {"ENGINE": "django.db.backends.postgresql", **named, "OPTIONS": parts | options}


def replicas(conninfos: Sequence[str]) -> list[str]:
    """Return the addresses of replicas, checked. Raises ImproperlyConfigured for an invalid or repeated one."""
    given = [conninfo.strip() for conninfo in conninfos if conninfo.strip()]
    places = [(parts.get("host"), parts.get("port")) for parts in (_parsed(each, REPLICAS) for each in given)]
    for place in places:
        if not place[0] or "," in str(place[0]) or places.count(place) > 1:
            raise ImproperlyConfigured(
                f"{REPLICAS}: host {place[0]!r} and port {place[1]!r}; each address must have one host, and none twice"
            )
    return given


def sql_address(conninfo: str) -> dict[str, Any]:
    """Return the address of the role that runs SQL of people, in parts; empty if it is not set.

    Raises ImproperlyConfigured for an invalid one, or one without a user.
    """
    parts = _parsed(conninfo, SQL) if conninfo else {}
    if parts and not parts.get("user"):
        raise ImproperlyConfigured(f"{SQL} names no user; write it as postgresql://tidegauge_sql:password@host/name")
    return parts


def _parsed(conninfo: str, variable: str = "DATABASE_URL") -> dict[str, Any]:
    # Imported here, because commands that need no database read the settings, too.
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {part: value for part, value in conninfo_to_dict(conninfo).items() if value is not None}
    except psycopg.ProgrammingError as error:
        # The message leaves the value out, because it contains a password.
        raise ImproperlyConfigured(
            f"{variable} is not a PostgreSQL address; write it as postgresql://user:password@host:5432/name"
        ) from error


def checked_origins(setting: str, origins: list[str]) -> list[str]:
    """Return the origins of a setting. Raises ImproperlyConfigured for one that no browser would send."""
    for origin in origins:
        if ORIGIN.fullmatch(origin) is None:
            raise ImproperlyConfigured(
                f"{setting}: {origin!r} is not an origin; write it as a browser sends it, such as https://app.example "
                "or http://localhost:5173: lower case, without a path or a default port"
            )
    return origins


def networks(setting: str, texts: Sequence[str]) -> list[Network]:
    """Return the networks of a setting. Raises ImproperlyConfigured for an invalid one."""
    try:
        return [ipaddress.ip_network(text.strip()) for text in texts if text.strip()]
    except ValueError as error:
        raise ImproperlyConfigured(f"{setting}: {error}; write networks as 10.1.0.0/16,fd00::/8") from None


def strong_secret_key(given: str) -> str:
    """Return the value of SECRET_KEY, which may be empty. Raises ImproperlyConfigured for one that can be guessed.

    It signs sessions and tokens: an attacker who guesses it signs in as anyone.
    """
    if given and (len(given) < SECRET_KEY_LENGTH or len(set(given)) < SECRET_KEY_CHARACTERS):
        raise ImproperlyConfigured(
            f"SECRET_KEY has {len(given)} characters, {len(set(given))} of them different; it needs "
            f"{SECRET_KEY_LENGTH} and {SECRET_KEY_CHARACTERS}: make one with `openssl rand -hex 32`, or leave it unset "
            "on a single machine"
        )
    return given


def stored_secret_key(path: Path) -> str:
    """Return the key in `path`; create it, readable only by its owner, if absent.

    Processes that start at the same time get the same key. Raises ImproperlyConfigured if the file is not accessible.
    """
    try:
        if not path.exists():
            _create_secret_key(path)
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"secret key file {str(path)!r}: {error.strerror}; set SECRET_KEY, or TIDEGAUGE_HOME to a folder "
            "that you can write to"
        ) from error


def _create_secret_key(path: Path) -> None:
    # If we are root, the embedded servers run as another user, which must be able to enter the folder.
    path.parent.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    # mkstemp gives mode 600; os.link does not replace a key that another process has created in the meantime.
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        Path(draft).unlink()
