"""The server that has a state's rows: whether it may drop them, whether it has, and what survives a restart."""

import os
from contextlib import suppress
from typing import Any

from tidegauge.state_backends.backends.redis.keys import KeyNames
from tidegauge.state_backends.backends.redis.scripts import Client, ScriptCalls
from tidegauge.state_backends.errors import BackendSetupError, BackendUnavailable
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.spec.state_spec import StateSpec

PAGE_KEYS = 1_000

# How many replicas must have a batch's writes before it is committed, and how long to wait for them: `1:500`.
WAIT = "TIDEGAUGE_REDIS_WAIT"

NO_FILE = (
    "Redis has no append-only file (appendonly no): what it has acknowledged since its last snapshot is lost when it "
    "stops, and the state must then be rebuilt; set appendonly yes"
)


def check_server(client: Any, names: KeyNames, spec: StateSpec) -> str:
    """Return a warning about the server of a state, "" for none.

    Raises BackendSetupError if it evicts keys without an expiry, such as rows; LostBatchesError for missing rows.
    The rows are counted once per start of a server, and again when it has evicted any key: a second per million.
    """
    # First, because a command by key finds the node that has it now, which may have been promoted a moment ago.
    counted = client.hget(names.guard, "counted")
    info = _info(client, names)
    policy = info.get("maxmemory_policy", "noeviction")
    # The volatile policies evict keys with an expiry only; no key of a state has one.
    if policy.startswith("allkeys") and info.get("maxmemory"):
        raise BackendSetupError(
            f"state {spec.name!r}: its Redis evicts keys when it is full (maxmemory-policy {policy!r}), so rows would "
            "be lost; set maxmemory-policy noeviction there, or give states their own Redis with TIDEGAUGE_REDIS_URL"
        )
    server = f"{info.get('run_id')} {info.get('evicted_keys', 0)}"
    if counted is None or counted != server.encode():
        _count(client, names, spec, server)
    return "" if info.get("aof_enabled") else NO_FILE


def wait_for_replicas(client: Client, names: KeyNames) -> None:
    """Wait until as many replicas as WAIT says have every write until now. Returns at once if it is not set.

    Raises BackendUnavailable if they do not have them in time, BackendSetupError for a wrong setting.
    """
    replicas, milliseconds = _wanted()
    if not replicas:
        return
    from tidegauge.state_backends.backends.redis.client import unavailable

    with unavailable(), node_of(client, names.guard).pipeline(transaction=False) as pipe:
        # A write first, because WAIT waits for the last write of its own connection. Earlier writes of others are
        # replicated before it.
        pipe.hset(names.guard, "waited", "1")
        pipe.wait(replicas, milliseconds)
        reached = int(pipe.execute()[-1])
    if reached < replicas:
        raise BackendUnavailable(
            f"redis: {reached} of {replicas} replicas have the batch after {milliseconds} ms; check the replicas, or "
            f"change {WAIT}"
        )


def node_of(client: Client, key: bytes) -> Any:
    """Return a client of the server that has a key; with one server, the client itself."""
    from redis.cluster import RedisCluster

    if not isinstance(client, RedisCluster):
        return client
    return client.get_redis_connection(client.get_node_from_key(key.decode()))  # type: ignore[no-untyped-call]


def _info(client: Client, names: KeyNames) -> dict[str, Any]:
    from tidegauge.state_backends.backends.redis.client import unavailable

    with unavailable():
        return node_of(client, names.guard).info()  # type: ignore[no-any-return]


def _wanted() -> tuple[int, int]:
    text = os.environ.get(WAIT, "")
    replicas, _, milliseconds = text.partition(":")
    if not text:
        return 0, 0
    if not (replicas.isdecimal() and milliseconds.isdecimal() and int(milliseconds)):
        raise BackendSetupError(f"{WAIT} is {text!r}; write it as replicas:milliseconds, such as '1:500'")
    return int(replicas), int(milliseconds)


def _count(client: Any, names: KeyNames, spec: StateSpec, server: str) -> None:
    gone = _gone(client, names, spec)
    if gone:
        client.hset(names.guard, "lost", gone)
        raise findings.lost_rows(spec, gone)
    # Ignored, because a full server that cannot store this only counts the rows again next time.
    with suppress(BackendUnavailable):
        if client.exists(names.keys):
            client.hset(names.guard, "counted", server)


def _gone(client: Any, names: KeyNames, spec: StateSpec) -> int:
    """Return how many keys have a place in the order but no row."""
    scripts, gone, after = ScriptCalls(client, spec), 0, b"-"
    while keys := client.zrangebylex(names.keys, after, b"+", start=0, num=PAGE_KEYS):
        gone += scripts.call("gone", [names.guard, names.keys, *names.rows(keys)], [names.row])
        after = b"(" + keys[-1]
    return gone
