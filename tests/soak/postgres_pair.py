"""A PostgreSQL primary with a streaming standby, from the wheel; killed, promoted, backed up and restored.

Data may be lost with the machine (fsync is off) and never with a process: a killed server keeps what the kernel has.
"""

import itertools
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests.soak.proxy import Proxy
from tidegauge.pipelines.embedded.data_dir import LOOPBACK, free_port
from tidegauge.pipelines.embedded.postgres import NAME, server_programs, server_user

PASSWORD = "soak"
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "150",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "fsync": "off",
    "full_page_writes": "on",
    "wal_level": "logical",
    "max_wal_senders": "8",
    "wal_keep_size": "256MB",
    "hot_standby": "on",
    "log_min_messages": "warning",
    "restart_after_crash": "on",
    "autovacuum_naptime": "10s",
}
WAIT_SECONDS = 240.0

# The time that everybody gets of this database: functions that are found before those of PostgreSQL.
CLOCK = """
CREATE SCHEMA soak;
CREATE TABLE soak.clock (step interval NOT NULL);
INSERT INTO soak.clock VALUES ('0');
CREATE FUNCTION soak.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
    AS 'SELECT pg_catalog.clock_timestamp() + step FROM soak.clock';
CREATE FUNCTION soak.now() RETURNS timestamptz STABLE LANGUAGE sql
    AS 'SELECT pg_catalog.now() + step FROM soak.clock';
ALTER DATABASE tidegauge SET search_path = public, soak, pg_catalog;
"""


class Server:
    """One PostgreSQL: its folder, with its data and its log, and its port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.port = folder, folder / "data", free_port()
        self._programs = server_programs()
        folder.mkdir()
        self._user = server_user(self.data, self._programs / "postgres")
        self._user.own(folder)

    @property
    def url(self) -> str:
        """Its own URL, not through the proxy."""
        return f"postgresql://{NAME}:{PASSWORD}@{LOOPBACK}:{self.port}/{NAME}"

    def create(self) -> None:
        """Make an empty database."""
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        self._user.own(secret)
        self._call("initdb", "-D", self.data, f"--username={NAME}", f"--pwfile={secret}", "--auth=scram-sha-256",
                   "--encoding=UTF8", "--locale=C", "--no-sync", "--wal-segsize=4")  # fmt: skip
        self._call("postgres", "--single", "-D", self.data, "postgres", stdin=f"CREATE DATABASE {NAME}\n")

    def copy(self, source: "Server", *options: str) -> None:
        """Make a base backup of another server."""
        self._call("pg_basebackup", "-d", source.url, "-D", self.data, "--checkpoint=fast", "--no-sync", *options)

    def start(self) -> None:
        options = shlex.join(f"-c{name}={value}" for name, value in {**SETTINGS, "port": str(self.port)}.items())
        self._call("pg_ctl", "start", "-w", "-t", str(int(WAIT_SECONDS)), "-D", self.data, "-o", options,
                   "-l", self.folder / "log")  # fmt: skip

    def stop(self) -> None:
        """An orderly stop: everything is sent to the standby first."""
        self._call("pg_ctl", "stop", "-m", "fast", "-w", "-D", self.data)

    def promote(self) -> None:
        self._call("pg_ctl", "promote", "-w", "-D", self.data)

    def dump(self) -> Path:
        """Return a dump of the database as it is now."""
        file = self.folder / f"{time.monotonic_ns()}.dump"
        self._call("pg_dump", "-Fc", "-f", file, self.url)
        return file

    def restore(self, file: Path) -> None:
        """Put a dump in the place of what is there.

        Errors are passed over: pg_restore tries to drop the keys of a table's partitions before the partitions.
        """
        words = ["pg_restore", "--clean", "--if-exists", "-d", self.url, file]
        self._user.run(self._programs / words[0], *words[1:])

    def kill(self) -> None:
        """Kill the server with all its processes."""
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            postmaster = psutil.Process(self.pid())
            family = [postmaster, *postmaster.children(recursive=True)]
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.send_signal(signal.SIGKILL)
            psutil.wait_procs(family, timeout=WAIT_SECONDS)

    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as conn:
            cursor = conn.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def _call(self, program: str, *words: object, stdin: str = "") -> None:
        done = self._user.run(self._programs / program, *map(str, words), stdin=stdin)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {(done.stderr or done.stdout).strip()[-1500:]}")


class PostgresPair:
    """The primary, its standby, and the proxy in front. Everybody uses `url`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        self.primary = self._new()
        self.primary.create()
        self.primary.start()
        self.primary.query(CLOCK)
        self.proxy = Proxy(self.primary.port)
        self.standby = self._follow()

    @property
    def url(self) -> str:
        return f"postgresql://{NAME}:{PASSWORD}@{LOOPBACK}:{self.proxy.port}/{NAME}"

    def step_clock(self, step: str) -> None:
        """Set how far the database's clock is ahead: `31 days`, `-1 hour`, `0`."""
        self.primary.query("UPDATE soak.clock SET step = %s::interval", step)

    def restart(self) -> None:
        """Kill the primary and start it again on its data."""
        self.primary.kill()
        (self.primary.data / "postmaster.pid").unlink(missing_ok=True)
        self.primary.start()

    def ensure_standby(self) -> None:
        """Start the standby if it has ended by itself, as on a full disk."""
        try:
            self.standby.query("SELECT 1")
        except psycopg.Error:
            self.standby.kill()
            (self.standby.data / "postmaster.pid").unlink(missing_ok=True)
            self.standby.start()

    def hold_standby_back(self) -> None:
        """Cut the standby off from the primary: what is committed from here on would be lost by a promotion."""
        self.standby.query("ALTER SYSTEM SET primary_conninfo = ''")
        self.standby.query("SELECT pg_reload_conf()")
        _wait(lambda: not self.standby.query("SELECT 1 FROM pg_stat_wal_receiver WHERE status = 'streaming'"))

    def catch_up(self) -> None:
        """Wait until the standby has replayed everything."""
        [(newest,)] = self.primary.query("SELECT pg_current_wal_lsn()")
        _wait(lambda: self.standby.query("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", newest)[0][0])

    def promote(self) -> Server:
        """Make the standby the primary and give it a new standby. Returns the old primary, which runs on."""
        old, self.primary = self.primary, self.standby
        self.proxy.target = None
        self.proxy.cut()
        self.primary.promote()
        self.proxy.target = self.primary.port
        self.standby = self._follow()
        return old

    def base_backup(self) -> Server:
        """Return a copy of the primary as it is now, not started."""
        backup = self._new()
        backup.copy(self.primary, "--wal-method=stream")
        return backup

    def restore(self, backup: Server) -> None:
        """Put a base backup in the place of the primary."""
        self.proxy.target = None
        self.proxy.cut()
        self.primary.remove()
        self.standby.remove()
        backup.start()
        self.primary = backup
        self.proxy.target = self.primary.port
        self.standby = self._follow()

    def close(self) -> None:
        self.proxy.close()
        for server in (self.standby, self.primary):
            server.remove()

    def _follow(self) -> Server:
        standby = self._new()
        standby.copy(self.primary, "--write-recovery-conf", "--wal-method=stream")
        standby.start()
        return standby

    def _new(self) -> Server:
        return Server(self.folder / f"postgres-{next(self._numbers)}")


def _wait(poll: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not poll():
        if time.monotonic() > deadline:
            raise TimeoutError("the standby does not follow")
        time.sleep(0.05)
