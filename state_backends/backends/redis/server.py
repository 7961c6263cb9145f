"""The servers that have a state's rows: whether they may drop them, whether they have, and what survives a restart."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any

from tidegauge.state_backends.backends.redis.keys import Buckets, KeyNames
from tidegauge.state_backends.backends.redis.pages import pages
from tidegauge.state_backends.backends.redis.scripts import Client, ScriptCalls, on_each_bucket
from tidegauge.state_backends.errors import BackendSetupError, BackendUnavailable
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.spec.state_spec import StateSpec

# How many replicas must have a batch's writes before it is committed, and how long to wait for them: `1:500`.
WAIT = "TIDEGAUGE_REDIS_WAIT"

NO_FILE = (
    "Redis has no append-only file (appendonly no): what it has acknowledged since its last snapshot is lost when it "
    "stops, and the state must then be rebuilt; set appendonly yes"
)


def check_server(client: Any, buckets: Buckets, spec: StateSpec) -> str:
    """Return a warning about the servers of a state, "" for none.

    Raises BackendSetupError if one evicts keys without an expiry, such as rows; LostBatchesError for missing rows.
    The rows are counted once per start of a server, and again when it has evicted any key: a second per million.
    """
    # First, because a command by key finds the node that has it now, which may have been promoted a moment ago.
    found = on_each_bucket(client, buckets.names, lambda pipe, names: pipe.hget(names.guard, "counted"))
    counted = dict(zip(buckets.names, found, strict=True))
    warnings = [
        _check_node(client, server, {names: counted[names] for names in own}, spec)
        for server, own in _by_node(client, buckets)
    ]
    return next(filter(None, warnings), "")


def _check_node(client: Any, server: Any, counted: dict[KeyNames, bytes | None], spec: StateSpec) -> str:
    """Check one server. counted: its buckets, and of which start of a server the rows of each were counted."""
    info = _info(server)
    policy = info.get("maxmemory_policy", "noeviction")
    # The volatile policies evict keys with an expiry only; no key of a state has one.
    if policy.startswith("allkeys") and info.get("maxmemory"):
        raise BackendSetupError(
            f"state {spec.name!r}: its Redis evicts keys when it is full (maxmemory-policy {policy!r}), so rows would "
            "be lost; set maxmemory-policy noeviction there, or give states their own Redis with TIDEGAUGE_REDIS_URL"
        )
    start = f"{info.get('run_id')} {info.get('evicted_keys', 0)}"
    if uncounted := [names for names, last in counted.items() if last != start.encode()]:
        _count(client, uncounted, spec, start)
    return "" if info.get("aof_enabled") else NO_FILE


def wait_for_replicas(client: Client, buckets: Buckets) -> None:
    """Wait until as many replicas as WAIT says have every write until now, of each server. Returns at once if not set.

    Raises BackendUnavailable if they do not have them in time, BackendSetupError for a wrong setting.
    """
    replicas, milliseconds = _wanted()
    if not replicas:
        return
    from tidegauge.state_backends.backends.redis.client import unavailable

    for server, own in _by_node(client, buckets):
        with unavailable(), server.pipeline(transaction=False) as pipe:
            # A write first, because WAIT waits for the last write of its own connection. Earlier writes of others are
            # replicated before it.
            pipe.hset(own[0].guard, "waited", "1")
            pipe.wait(replicas, milliseconds)
            reached = int(pipe.execute()[-1])
        if reached < replicas:
            raise BackendUnavailable(
                f"redis: {reached} of {replicas} replicas have the batch after {milliseconds} ms; check the replicas, "
                f"or change {WAIT}"
            )


def _by_node(client: Client, buckets: Buckets) -> Iterator[tuple[Any, Sequence[KeyNames]]]:
    """Yield a client of each server that has some of the buckets, and these; with one server, the client itself."""
    from redis.cluster import RedisCluster

    if not isinstance(client, RedisCluster):
        yield client, buckets.names
        return
    of_node: dict[Any, list[KeyNames]] = {}
    for names in buckets.names:
        of_node.setdefault(client.get_node_from_key(names.guard.decode()), []).append(names)  # type: ignore[no-untyped-call]
    for node, own in of_node.items():
        yield client.get_redis_connection(node), own


def _info(server: Any) -> dict[str, Any]:
    from tidegauge.state_backends.backends.redis.client import unavailable

    with unavailable():
        return server.info()  # type: ignore[no-any-return]


def _wanted() -> tuple[int, int]:
    text = os.environ.get(WAIT, "")
    replicas, _, milliseconds = text.partition(":")
    if not text:
        return 0, 0
    if not (replicas.isdecimal() and milliseconds.isdecimal() and int(milliseconds)):
        raise BackendSetupError(f"{WAIT} is {text!r}; write it as replicas:milliseconds, such as '1:500'")
    return int(replicas), int(milliseconds)


def _count(client: Any, buckets: Sequence[KeyNames], spec: StateSpec, start: str) -> None:
    """Count the rows of some buckets on one server, and note it there. Raises LostBatchesError for missing ones."""
    gone = {names: count for names, count in _gone(client, buckets, spec).items() if count}
    if gone:
        on_each_bucket(client, list(gone), lambda pipe, names: pipe.hset(names.guard, "lost", gone[names]))
        raise findings.lost_rows(spec, sum(gone.values()))
    # Ignored, because a full server that cannot store this only counts the rows again next time.
    with suppress(BackendUnavailable):
        filled = on_each_bucket(client, buckets, lambda pipe, names: pipe.exists(names.keys))
        on_each_bucket(
            client, list(compress(buckets, filled)), lambda pipe, names: pipe.hset(names.guard, "counted", start)
        )


def _gone(client: Any, buckets: Sequence[KeyNames], spec: StateSpec) -> Counter[KeyNames]:
    """Return by bucket how many keys have a place in the order but no row."""
    scripts, gone = ScriptCalls(client, spec), Counter[KeyNames]()
    for page in pages(client, buckets):
        calls = ((names, [names.guard, names.keys, *rows], [names.row]) for names, rows in page.parts)
        gone.update(dict(scripts.run("gone", calls)))
    return gone
