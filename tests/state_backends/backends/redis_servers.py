"""A Redis of the tests' own: clients to which something happens, and a node of a cluster."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis

from tests.redis_port import reserved_port
from tidegauge.pipelines.embedded.redis import redis_server

SLOTS = 16_384


class Interrupted(redis.Redis):
    """A client with round trips before which something happens: another driver takes over, or this one dies."""

    _trips = 0

    @contextlib.contextmanager
    def interrupted(self, trip: int, happens: Callable[[], None]) -> Iterator[None]:
        """Let it happen before the n-th pipeline from here on."""
        self._trips, self._happens = trip, happens
        try:
            yield
        finally:
            self._trips = 0

    def pipeline(self, *args: Any, **options: Any) -> Any:
        self._trips -= 1
        if self._trips == 0:
            self._happens()
        return super().pipeline(*args, **options)


@contextlib.contextmanager
def cluster_node(folder: Path) -> Iterator[int]:
    """Start a cluster of one node, which refuses scripts that touch two slots or keys they do not name."""
    port = reserved_port()
    options = {"port": port, "dir": folder, "cluster-enabled": "yes", "save": "", "bind": "127.0.0.1"}
    command = [redis_server(), *(text for name, value in options.items() for text in (f"--{name}", str(value)))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            _assign_slots(redis.Redis(port=port))
            yield port
        finally:
            server.terminate()


def _assign_slots(client: redis.Redis) -> None:
    deadline = time.monotonic() + 30
    while not _is_serving(client):
        assert time.monotonic() < deadline, "the cluster's node does not come up"
        time.sleep(0.05)


def _is_serving(client: redis.Redis) -> bool:
    try:
        if client.execute_command("CLUSTER INFO")["cluster_slots_assigned"] == "0":
            client.execute_command("CLUSTER ADDSLOTS", *range(SLOTS))
        return client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
    except redis.ConnectionError:
        return False
