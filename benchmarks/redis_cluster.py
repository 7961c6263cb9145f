"""Redis Clusters for benchmarks: some nodes on this machine, without replicas, and what they use of it."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import redis

from tidegauge.pipelines.embedded.data_dir import LOOPBACK, free_port
from tidegauge.pipelines.embedded.redis import redis_server

SLOTS = 16_384
START_SECONDS = 60


class RedisCluster:
    """The nodes of one cluster, each with an equal range of slots."""

    def __init__(self, folder: Path, nodes: int, *, durable: bool) -> None:
        self._ports = [(free_port(), free_port()) for _ in range(nodes)]  # for clients, and between the nodes
        self._servers = [_start(folder / str(port), port, bus, durable) for port, bus in self._ports]
        self._clients = [redis.Redis(port=port) for port, _ in self._ports]
        _wait(lambda: all(client.ping() for client in self._clients))
        for number, client in enumerate(self._clients):
            first, end = (SLOTS * place // nodes for place in (number, number + 1))
            client.execute_command("CLUSTER ADDSLOTS", *range(first, end))  # type: ignore[no-untyped-call]
            # Two nodes that meet with equal epochs make one of them new by themselves, but later.
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)  # type: ignore[no-untyped-call]
            client.execute_command("CLUSTER MEET", LOOPBACK, *self._ports[0])  # type: ignore[no-untyped-call]
        _wait(lambda: all(map(self._is_complete, self._clients)))

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{LOOPBACK}:{port}" for port, _ in self._ports)

    def cpu_seconds(self) -> float:
        """Return the processor time that its servers have taken."""
        return sum(sum(psutil.Process(server.pid).cpu_times()[:2]) for server in self._servers)

    def memory(self) -> int:
        """Return the bytes that its servers have allocated."""
        return sum(client.info("memory")["used_memory"] for client in self._clients)

    def close(self) -> None:
        for client, server in zip(self._clients, self._servers, strict=True):
            client.close()
            server.terminate()
            server.wait()

    def _is_complete(self, client: "redis.Redis") -> bool:
        found = client.execute_command("CLUSTER INFO")  # type: ignore[no-untyped-call]
        return found["cluster_state"] == "ok" and int(found["cluster_known_nodes"]) == len(self._ports)


@contextmanager
def redis_cluster(folder: Path, nodes: int, *, durable: bool = True) -> Iterator[RedisCluster]:
    """Start a cluster and stop it afterwards. durable: with an append-only file that is written every second."""
    cluster = RedisCluster(folder / f"{nodes}-nodes", nodes, durable=durable)
    try:
        yield cluster
    finally:
        cluster.close()


def _start(folder: Path, port: int, bus: int, durable: bool) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True)
    # The file is not rewritten, because that would copy the memory at a time of its own.
    options = {"port": port, "cluster-port": bus, "cluster-enabled": "yes", "bind": LOOPBACK, "dir": folder, "save": ""}
    options |= {"appendonly": "yes" if durable else "no", "auto-aof-rewrite-percentage": 0}
    words = [str(text) for name, value in options.items() for text in (f"--{name}", value)]
    return subprocess.Popen([redis_server(), *words], stdout=subprocess.DEVNULL)


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with suppress(redis.RedisError):
            if holds():
                return
        if time.monotonic() > deadline:
            raise TimeoutError("the nodes of the cluster do not come up")
        time.sleep(0.05)
