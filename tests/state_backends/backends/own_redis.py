"""Redis servers of a test's own, to be killed, promoted, filled and restarted: single ones, Sentinels, a cluster."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.redis_port import reserved_port
from tidegauge.pipelines.embedded.redis import redis_server

SLOTS = 16_384
MASTERS = 3
PATIENCE_SECONDS = 60  # on a busy machine


class OwnRedis:
    """A server on the loopback address. options: settings of redis.conf, a dash as an underscore."""

    def __init__(self, folder: Path, *, sentinel: bool = False, **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = reserved_port()
        self._sentinel = sentinel
        self._log = folder / "server.log"
        self._config = folder / "redis.conf"
        settings = {"port": self.port, "dir": folder, "bind": "127.0.0.1", "protected-mode": "no"}
        if not sentinel:
            settings |= {"save": '""', "repl-diskless-sync": "yes", "repl-diskless-sync-delay": 0}
        settings |= {name.replace("_", "-"): value for name, value in options.items()}
        self._config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self.client = redis.Redis(port=self.port)
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        mode = ["--sentinel"] if self._sentinel else []
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([redis_server(), self._config, *mode], stdout=log, stderr=log)
        wait_until(self._answers)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.process.wait()
        self.start()

    def close(self) -> None:
        self.client.close()
        self.kill()

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.BusyLoadingError:
            return False


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with suppress(redis.RedisError):
            if holds():
                return
        assert time.monotonic() < deadline, "the servers are not as the test needs them"
        time.sleep(0.05)


@contextmanager
def servers(folder: Path) -> Iterator[Callable[..., OwnRedis]]:
    """Start servers, which end with the context."""
    started: list[OwnRedis] = []

    def start(**options: Any) -> OwnRedis:
        started.append(OwnRedis(folder / str(len(started)), **options))
        return started[-1]

    try:
        yield start
    finally:
        for server in started:
            server.close()


def follow(replica: OwnRedis, master: OwnRedis) -> None:
    replica.client.replicaof("127.0.0.1", master.port)
    wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up")


class OwnCluster:
    """Three masters with a replica each, made by the commands that a cluster's nodes take."""

    def __init__(self, start: Callable[..., OwnRedis]) -> None:
        options = {"cluster_enabled": "yes", "cluster_node_timeout": 2_000, "cluster_announce_ip": "127.0.0.1"}
        self.nodes = [start(appendonly="yes", **options) for _ in range(2 * MASTERS)]
        self.masters, replicas = self.nodes[:MASTERS], self.nodes[MASTERS:]
        for number, master in enumerate(self.masters):
            first, end = (SLOTS * place // MASTERS for place in (number, number + 1))
            master.client.execute_command("CLUSTER ADDSLOTS", *range(first, end))
            # Two nodes that meet with equal epochs make one of them new by themselves, but later.
            master.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            node.client.execute_command("CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        wait_until(lambda: all(self._state(node)["cluster_known_nodes"] == "6" for node in self.nodes))
        for master, replica in zip(self.masters, replicas, strict=True):
            replica.client.execute_command("CLUSTER REPLICATE", master.client.execute_command("CLUSTER MYID"))
        wait_until(lambda: all(self._state(node)["cluster_state"] == "ok" for node in self.nodes))
        wait_until(lambda: all(self._has_replica(master) for master in self.masters))

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def owner(self, slot: int) -> OwnRedis:
        """Return the master that has a slot now, as the first node that answers knows."""
        for node in self.nodes:
            with suppress(redis.RedisError):
                ranges = node.client.execute_command("CLUSTER SLOTS")
                port = next(at[1] for (first, last), at in _slot_owners(ranges) if first <= slot <= last)
                return next(each for each in self.nodes if each.port == port)
        raise AssertionError(f"no node has slot {slot}")

    def fail_over(self, master: OwnRedis) -> None:
        """Kill a master, and wait until its replica is promoted and every node knows it."""
        wait_until(lambda: self._has_replica(master))  # which may be copying everything again, after much was written
        replica = self.replica_of(master)
        master.kill()
        wait_until(lambda: replica.client.info("replication")["role"] == "master")
        alive = [node for node in self.nodes if node is not master]
        wait_until(lambda: all(self._state(node)["cluster_state"] == "ok" for node in alive))

    def replica_of(self, master: OwnRedis) -> OwnRedis:
        port = int(master.client.info("replication")["slave0"]["port"])
        return next(node for node in self.nodes if node.port == port)

    def revive(self, node: OwnRedis) -> None:
        """Start a killed master again, which then follows the one that was promoted."""
        node.restart()
        wait_until(lambda: node.client.info("replication").get("master_link_status") == "up")
        wait_until(lambda: all(self._has_replica(each) for each in self.masters_now()))

    def move_slot(self, slot: int, target: OwnRedis) -> None:
        """Move a slot with its keys to another master, as `redis-cli --cluster reshard` does."""
        source = self.owner(slot)
        if source is not target:
            self.begin_move(slot, source, target)
            self.end_move(slot, source, target)

    def begin_move(self, slot: int, source: OwnRedis, target: OwnRedis) -> None:
        """Announce the move of a slot; from now on the source makes no keys in it that it does not have."""
        target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", _id(source))
        source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", _id(target))

    def end_move(self, slot: int, source: OwnRedis, target: OwnRedis) -> None:
        while keys := source.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 10):
            source.client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *keys)
        for node in (target, source, *self.masters_now()):
            node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", _id(target))

    def masters_now(self) -> list[OwnRedis]:
        return [node for node in self.nodes if node.client.info("replication")["role"] == "master"]

    def master_of(self, key: str) -> OwnRedis:
        slot = self.nodes[0].client.execute_command("CLUSTER KEYSLOT", key)
        return self.masters[next(n for n in range(MASTERS) if slot < SLOTS * (n + 1) // MASTERS)]

    def kill_master_of(self, key: str) -> None:
        """Kill the master that has a key, and wait until its replica is promoted."""
        master = self.master_of(key)
        replica = self.nodes[MASTERS + self.masters.index(master)]
        master.kill()
        wait_until(lambda: replica.client.info("replication")["role"] == "master")
        wait_until(lambda: self._state(replica)["cluster_state"] == "ok")

    @staticmethod
    def _state(node: OwnRedis) -> dict[str, str]:
        return node.client.execute_command("CLUSTER INFO")  # type: ignore[no-any-return]

    @staticmethod
    def _has_replica(master: OwnRedis) -> bool:
        found = master.client.info("replication")
        return any(name.startswith("slave") and part["state"] == "online" for name, part in _parts(found))


@contextmanager
def own_cluster(folder: Path) -> Iterator[OwnCluster]:
    """Start a cluster that states are in within the block, because TIDEGAUGE_REDIS_URL names it."""
    with servers(folder) as start, pytest.MonkeyPatch.context() as patch:
        cluster = OwnCluster(start)
        patch.setenv("TIDEGAUGE_REDIS_URL", cluster.url)
        yield cluster


def _id(node: OwnRedis) -> bytes:
    return node.client.execute_command("CLUSTER MYID")  # type: ignore[no-any-return]


def _slot_owners(ranges: Any) -> Iterator[tuple[tuple[int, int], tuple[str, int]]]:
    # redis-py parses the answer to a dict, or leaves it as a list, depending on the protocol.
    if isinstance(ranges, dict):
        yield from ((slots, found["primary"]) for slots, found in ranges.items())
    else:
        yield from (((first, last), (str(at[0]), int(at[1]))) for first, last, at, *_ in ranges)


def _parts(info: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, part) for name, part in info.items() if isinstance(part, dict)]
