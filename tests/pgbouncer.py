"""A real PgBouncer in front of a database of the tests."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

MISSING = "no pgbouncer on this machine: apt-get install pgbouncer"
PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

# `make rest` installs it, and so its tests are not for `make test`. On CI they fail without it.
BEHIND_PGBOUNCER = [
    pytest.mark.processes,
    pytest.mark.skipif(PROGRAM is None and "CI" not in os.environ, reason=MISSING),
]


@contextmanager
def pgbouncer(database_url: str, folder: Path, *lines: str, mode: str = "transaction") -> Iterator[str]:
    """Run a PgBouncer with a pool of two sessions; give the address that leads through it. lines: of its file."""
    server, port = conninfo_to_dict(database_url), _free_port()
    config = folder / f"{port}.ini"
    address = make_conninfo(**{name: server[name] for name in ("host", "port", "user", "password") if name in server})
    config.write_text(
        f"[databases]\n* = {address}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"unix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = 2\n" + "\n".join(lines)
    )
    # It refuses to run as root.
    folder.chmod(0o755)
    for parent in folder.parents:
        if parent.owner() == "root" and parent not in (Path("/"), Path("/tmp")):  # noqa: S108
            parent.chmod(0o755)
    assert PROGRAM is not None, MISSING
    process = subprocess.Popen([PROGRAM, "-q", "-u", "nobody", config])
    try:
        _wait_for(port)
        yield make_conninfo(database_url, host="127.0.0.1", port=port)
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while socket.socket().connect_ex(("127.0.0.1", port)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
