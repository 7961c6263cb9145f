"""A Redis with a replica, behind a proxy; killed, promoted, restored from a snapshot, emptied and filled up."""

import itertools
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from tests.pipelines.cluster.spark_cluster import end_with_parent
from tests.soak.proxy import Proxy
from tidegauge.pipelines.embedded.data_dir import LOOPBACK, free_port
from tidegauge.pipelines.embedded.redis import redis_server

WAIT_SECONDS = 120.0


class Server:
    """One Redis: its folder and its port. It ends with this process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        folder.mkdir()
        self.client = redis.Redis(port=self.port, socket_timeout=10)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **options: object) -> None:
        """options: further settings, with underscores for hyphens."""
        settings = {"port": self.port, "bind": LOOPBACK, "dir": self.folder, "appendonly": "yes", "save": "",
                    "repl-diskless-sync": "yes", "repl-diskless-sync-delay": 0, "maxmemory-policy": "noeviction",
                    **{name.replace("_", "-"): value for name, value in options.items()}}  # fmt: skip
        words = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [redis_server(), *words], stdout=log, stderr=log, preexec_fn=end_with_parent
            )
        _wait(self._answers)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self.client.connection_pool.disconnect()

    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def call(self, *words: Any) -> Any:
        return self.client.execute_command(*words)

    def snapshot(self) -> bytes:
        """Return an RDB file of what it holds now."""
        self.call("SAVE")
        return (self.folder / "dump.rdb").read_bytes()

    def start_from(self, snapshot: bytes) -> None:
        """Start with the content of an RDB file; the append-only file begins again."""
        self.kill()
        for file in self.folder.glob("appendonly*"):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        (self.folder / "dump.rdb").write_bytes(snapshot)
        self.start(appendonly="no")
        self.call("CONFIG", "SET", "appendonly", "yes")
        _wait(lambda: not self.client.info("persistence")["aof_rewrite_in_progress"])

    def _answers(self) -> bool:
        with suppress(redis.RedisError):
            return bool(self.client.ping())
        return False


class RedisPair:
    """The master, its replica, and the proxy in front. Everybody uses `url`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        self.master = self._new()
        self.master.start()
        self.replica = self._follow()
        self.proxy = Proxy(self.master.port)

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.proxy.port}/0"

    def restart(self) -> None:
        """Kill the master and start it on its append-only file."""
        self.master.kill()
        self.master.start()

    def ensure_running(self) -> None:
        """Start what has ended by itself."""
        for server in (self.master, self.replica):
            if server.has_ended():
                server.start()

    def hold_replica_back(self) -> None:
        """Let the replica follow no longer, and keep what it has."""
        self.catch_up()
        self.replica.call("REPLICAOF", "NO", "ONE")

    def catch_up(self) -> None:
        _wait(lambda: self.replica.client.info("replication").get("master_link_status") == "up")
        newest = self.master.client.info("replication")["master_repl_offset"]
        _wait(lambda: self.replica.client.info("replication")["slave_repl_offset"] >= newest)

    def promote(self) -> None:
        """Make the replica the master, kill the old one, and give it a new replica."""
        self.proxy.target = None
        self.proxy.cut()
        self.master.kill()
        self.master = self.replica
        self.master.call("REPLICAOF", "NO", "ONE")
        self.proxy.target = self.master.port
        self.replica = self._follow()

    def restore(self, snapshot: bytes) -> None:
        """Put the content of an RDB file in the place of what the master holds."""
        self.proxy.cut()
        self.master.start_from(snapshot)

    def close(self) -> None:
        self.proxy.close()
        self.replica.kill()
        self.master.kill()

    def _follow(self) -> Server:
        replica = self._new()
        replica.start()
        replica.call("REPLICAOF", LOOPBACK, self.master.port)
        _wait(lambda: replica.client.info("replication").get("master_link_status") == "up")
        return replica

    def _new(self) -> Server:
        return Server(self.folder / f"redis-{next(self._numbers)}")


def _wait(poll: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not poll():
        if time.monotonic() > deadline:
            raise TimeoutError("redis does not answer, or does not follow")
        time.sleep(0.02)
