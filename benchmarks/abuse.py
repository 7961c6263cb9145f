"""abuse: how long lookups of one API key take while another client occupies as much as it can of the same web process.

The honest client sends lookups of 100 keys one after the other, and each is timed; p99 is taken per round. The other
client opens sockets and sends no request, or one without its body, reads exports slowly, waits for a batch that does
not come, searches 1.5 million keys, or sends 32 ordinary calls at once. If it is refused, it tries again after a
second. Strangers, who have no API key, hold bodies back, send keys that do not exist, ask for the API's description and
guess passwords. Each round measures each of these separately. What the other client computes for itself runs at the
lowest priority in a process of its own, because it would be on another machine.
"""

import json
import multiprocessing
import os
import resource
import selectors
import socket
import time
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import cycle

import psycopg

from benchmarks import ordinary_calls
from benchmarks.cases import Case, median_case, percentile
from benchmarks.http_client import END_OF_HEADERS, Connection, get, post, request_once
from benchmarks.servers import database, redis_client
from benchmarks.web import BODIES, LOOKUP, fill, lookup_body, migrate_and_make_key, served_by_granian, web_environ
from tidegauge.pipelines.embedded.data_dir import LOOPBACK
from tidegauge.state_backends import Catalog, Count, StateSpec

SEEDS = "the keys of body n: n, from 0; the rows of the states: 0"
UNEQUAL = {"quiet": "Only what the other client does."}

VISITORS = StateSpec("bench_visitors", key={"visitor": "text"}, measures={"visits": Count()})
KEYS = 1_500_000
REQUESTS = 400
ROUNDS = 5
NEVER = 2**60  # a batch that does not come
SETTLE_SECONDS = 1.0
MIB_4 = 4 * 1024 * 1024

Abuse = Callable[[int, str], AbstractContextManager[None]]


def run(keys: int = KEYS, requests: int = REQUESTS, rounds: int = ROUNDS) -> Iterator[Case]:
    _allow_sockets()
    measured: dict[str, list[list[float]]] = {}
    with database() as conn, redis_client(), ExitStack() as servers:
        fill(conn)
        _fill_visitors(conn, keys)
        ordinary_calls.fill(conn)
        environ = web_environ(conn)
        honest, other = migrate_and_make_key(environ), migrate_and_make_key(environ)
        port = servers.enter_context(served_by_granian(environ))
        _seconds(port, honest, requests)
        for _ in range(rounds):
            for name, abuse in _ABUSES.items():
                with abuse(port, other):
                    time.sleep(SETTLE_SECONDS)
                    measured.setdefault(name, []).append(_seconds(port, honest, requests))
                time.sleep(SETTLE_SECONDS)
    quiet = [percentile(times, 99) for times in measured["quiet"]]
    for name, times in measured.items():
        yield median_case(f"p50_{name}", [percentile(each, 50) for each in times], "ms")
        references = {} if name == "quiet" else {"quiet": quiet}
        yield median_case(f"p99_{name}", [percentile(each, 99) for each in times], "ms", references)


def _seconds(port: int, key: str, requests: int) -> list[float]:
    """Return the time of each lookup in ms. Raises RuntimeError if one is not answered with 200."""
    connection, taken = Connection(port), []
    bodies = cycle([post(LOOKUP, lookup_body(seed), Authorization=f"Bearer {key}") for seed in range(BODIES)])
    for _ in range(requests):
        started = time.perf_counter()
        connection.send(next(bodies))
        while (answer := connection.receive()) is None:
            pass
        taken.append(1000 * (time.perf_counter() - started))
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"a lookup was not answered: {answer[:300]!r}")
    connection.socket.close()
    return taken


def _fill_visitors(conn: psycopg.Connection, keys: int) -> None:
    Catalog(conn).register_states("bench", [VISITORS], {VISITORS.name: "exactly once"})
    conn.execute(
        "INSERT INTO tidegauge_state.bench_visitors (visitor, visits, txid, updated_at) "
        "SELECT 'visitor ' || lpad(g::text, 8, '0'), 1, 1, now() FROM generate_series(1, %s) g",
        [keys],
    )
    conn.execute("VACUUM ANALYZE tidegauge_state.bench_visitors")


def _allow_sockets() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


# What the other client does


@contextmanager
def _nothing(port: int, key: str) -> Iterator[None]:
    yield


@contextmanager
def _sockets(port: int, sent: bytes, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((LOOPBACK, port))) for _ in range(count)]
        for client in clients:
            with suppress(OSError):  # it may be refused while it is sent
                client.sendall(sent)
        yield clients


@contextmanager
def _without_body(port: int, key: str) -> Iterator[None]:
    head, _, _ = post(LOOKUP, b" " * 1_000, Authorization=f"Bearer {key}").partition(END_OF_HEADERS)
    with _sockets(port, head + END_OF_HEADERS, 200):
        yield


@contextmanager
def _silent(port: int, key: str) -> Iterator[None]:
    with _sockets(port, b"", 1_300):
        yield


@contextmanager
def _slow_exports(port: int, key: str) -> Iterator[None]:
    with _sockets(port, get(f"/api/v1/states/{VISITORS.name}/export?format=csv", key), 32) as clients:
        yield from _meanwhile(lambda: _read_slowly(clients))


@contextmanager
def _waits(port: int, key: str) -> Iterator[None]:
    body = json.dumps({"keys": [], "min_txid": NEVER}).encode()
    yield from _again_and_again(port, [post(LOOKUP, body, Authorization=f"Bearer {key}")] * 200)


@contextmanager
def _searches(port: int, key: str) -> Iterator[None]:
    path = f"/api/v1/states/{VISITORS.name}/entries?search=zzz"
    yield from _again_and_again(port, [get(path, key)] * 40)


def _ordinary(call: Callable[[str], bytes]) -> Abuse:
    @contextmanager
    def abuse(port: int, key: str) -> Iterator[None]:
        answer = request_once(port, call(key))
        if answer.status != 200:
            raise RuntimeError(f"an ordinary call was not answered: {answer.body[:300]!r}")
        yield from _again_and_again(port, [call(key)] * 32)

    return abuse


@contextmanager
def _held_bodies(port: int, key: str) -> Iterator[None]:
    head, _, _ = post(LOOKUP, b" " * MIB_4, Authorization="Bearer tmk_00000000_x").partition(END_OF_HEADERS)
    with _sockets(port, head + END_OF_HEADERS + b" " * (MIB_4 - 1), 40):
        yield


@contextmanager
def _random_keys(port: int, key: str) -> Iterator[None]:
    requests = [post(LOOKUP, lookup_body(0), Authorization=f"Bearer tmk_{number:08x}_x") for number in range(1_200)]
    yield from _again_and_again(port, requests)


@contextmanager
def _descriptions(port: int, key: str) -> Iterator[None]:
    yield from _again_and_again(port, [get("/api/docs"), get("/api/schema")])


@contextmanager
def _wrong_passwords(port: int, key: str) -> Iterator[None]:
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/login") as page:
        cookie = page.headers["Set-Cookie"].partition(";")[0]
    form = urllib.parse.urlencode({"csrfmiddlewaretoken": cookie.partition("=")[2], "username": "ann", "password": "x"})
    sent = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}Content-Length: {len(form)}\r\n\r\n"
    yield from _again_and_again(port, [(head + form).encode()] * 16)


_ABUSES: Mapping[str, Abuse] = {
    "quiet": _nothing,
    "200_requests_without_body": _without_body,
    "1300_silent_sockets": _silent,
    "32_slow_exports": _slow_exports,
    "200_waits": _waits,
    "40_searches": _searches,
    **{f"32_{name}": _ordinary(call) for name, call in ordinary_calls.CALLS.items()},
    "40_held_bodies_of_strangers": _held_bodies,
    "1200_keys_that_do_not_exist": _random_keys,
    "2_readers_of_the_description": _descriptions,
    "16_wrong_passwords": _wrong_passwords,
}


def _meanwhile(step: Callable[[], None]) -> Iterator[None]:
    """Repeat a step in a process until the block ends. Raises RuntimeError if one failed; nothing was measured then."""
    forked = multiprocessing.get_context("fork")
    ended = forked.Event()

    def repeat() -> None:
        os.nice(19)
        while not ended.is_set():
            step()

    process = forked.Process(target=repeat)
    process.start()
    try:
        yield
    finally:
        ended.set()
        process.join()
    if process.exitcode:
        raise RuntimeError("the other client failed; its traceback is above")


def _read_slowly(clients: list[socket.socket]) -> None:
    time.sleep(0.1)
    for client in clients:
        client.setblocking(False)
        try:
            client.recv(4_096)
        except BlockingIOError:
            continue


class _Attacker:
    """Sends one request again and again, on a new connection where the server has closed the last one."""

    def __init__(self, port: int, request: bytes, selector: selectors.BaseSelector) -> None:
        self._port, self._request, self._selector = port, request, selector
        self._connection: Connection | None = None
        self._is_pending = False

    def send(self) -> None:
        if self._connection is None:
            self._connection = Connection(self._port)
            self._selector.register(self._connection.socket, selectors.EVENT_READ, self)
        self._is_pending = True
        with suppress(OSError):  # closed a moment ago, which `receive` finds as well
            self._connection.send(self._request)

    def receive(self) -> float | None:
        """Read once; return after how many seconds to send again, None if it is too early to say."""
        assert self._connection is not None
        was_pending = self._is_pending
        try:
            answer = self._connection.receive()
        except OSError:
            self.close()
            return 1.0 if was_pending else None
        if answer is None or not was_pending:
            return None
        self._is_pending = False
        return 0.0 if answer.startswith(b"HTTP/1.1 200 ") else 1.0

    def close(self) -> None:
        if self._connection is not None:
            self._selector.unregister(self._connection.socket)
            self._connection.socket.close()
            self._connection, self._is_pending = None, False


def _again_and_again(port: int, requests: Sequence[bytes]) -> Iterator[None]:
    """Keep each request pending; a refused one is sent again after a second."""
    with selectors.DefaultSelector() as selector:
        due = deque((0.0, _Attacker(port, request, selector)) for request in requests)
        again: deque[_Attacker] = deque()

        def step() -> None:
            while again:
                again.popleft().send()
            while due and due[0][0] <= time.monotonic():
                due.popleft()[1].send()
            for ready, _ in selector.select(0.05):
                pause = ready.data.receive()
                if pause == 0.0:
                    again.append(ready.data)
                elif pause is not None:
                    due.append((time.monotonic() + pause, ready.data))

        yield from _meanwhile(step)
