"""latency: how long calls of the API take, by the number of keys and of clients that ask at once.

Each client sends its next request when it has the answer to the last one, so there are as many requests under way as
clients. A web process of two workers answers them; clients, process and database share the machine.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from urllib.parse import quote

from benchmarks.cases import Case, median_case, percentile
from benchmarks.http_client import durations, get, post, request_once
from benchmarks.servers import database, redis_client
from benchmarks.web import (
    BODIES,
    LOOKUP,
    fill,
    lookup_body,
    migrate_and_make_key,
    served_by_granian,
    shops_asked,
    web_environ,
)

UNEQUAL = {"lookup_100": "100 keys, with as many clients."}
SEEDS = "the keys of body n: n, from 0; the rows of the state: 0"

STATE = LOOKUP.removesuffix("/lookup")
CLIENTS = (1, 8, 32)
KEYS = (1, 10, 100, 500)
REFERENCE = "lookup_100"
REQUESTS = 400
ROUNDS = 5


def run(requests: int = REQUESTS, rounds: int = ROUNDS) -> Iterator[Case]:
    with database() as conn, redis_client(), ExitStack() as servers:
        fill(conn)
        environ = web_environ(conn)
        key = migrate_and_make_key(environ)
        port = servers.enter_context(served_by_granian(environ))
        calls = _calls(port, key)
        for clients in CLIENTS:
            measured: dict[str, list[list[float]]] = {name: [] for name in calls}
            for _ in range(rounds + 1):
                for name, (sent, status) in calls.items():
                    measured[name].append(durations(port, sent, requests, status, clients))
            yield from _cases(clients, {name: each[1:] for name, each in measured.items()})


def _cases(clients: int, measured: Mapping[str, list[list[float]]]) -> Iterator[Case]:
    for percent in (50, 99):
        in_ms = {name: [1_000 * percentile(each, percent) for each in times] for name, times in measured.items()}
        for name, figures in in_ms.items():
            references = {} if name == REFERENCE else {REFERENCE: in_ms[REFERENCE]}
            yield median_case(f"{name}_{clients}_clients_p{percent}", figures, "ms", references)


def _calls(port: int, key: str) -> dict[str, tuple[list[bytes], int]]:
    """Return the requests of each call, which are sent in turn, and the status of their answers."""
    authorized = {"Authorization": f"Bearer {key}"}
    lookups = {
        f"lookup_{count}": ([post(LOOKUP, lookup_body(seed, count), **authorized) for seed in range(BODIES)], 200)
        for count in KEYS
    }
    known = [
        post(LOOKUP, lookup_body(seed), **authorized, If_None_Match=request_once(port, lookup).headers["etag"])
        for seed, lookup in enumerate(lookups[REFERENCE][0])
    ]
    folds = [
        post(LOOKUP, lookup_body(seed).replace(b"{", b'{"combine": true, ', 1), **authorized) for seed in range(BODIES)
    ]
    one = [get(f"{STATE}/keys?key={quote(shops_asked(seed)[0])}", key) for seed in range(BODIES)]
    pages = {f"entries_{limit}": ([get(f"{STATE}/entries?limit={limit}", key)], 200) for limit in (50, 1_000)}
    return {"key": (one, 200), **lookups, "poll_304": (known, 304), "combine_100": (folds, 200), **pages}
