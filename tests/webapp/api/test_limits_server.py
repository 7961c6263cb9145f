"""What one client may hold of a real web process: exports, waits, searches, and what is left for the others."""

import json
import os
import select
import signal
import socket
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.harness.waiting import eventually
from tests.webapp.api.large import snapshots
from tests.webapp.web_server import Server, all_of, asked, connected, one_of, request, web_server
from tidegauge.webapp.accounts.concurrency import SEARCHES, BusyError, Concurrency, TooManyAtOnceError
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.core.pools import pool_of

EXPORT = "/api/v1/states/large/export?format=csv"
LOOKUP = "/api/v1/states/flights_by_carrier/lookup"
KEYS = {"keys": [["JFK", "AA"]]}

FEW_THREADS = {
    "TIDEGAUGE_LOOKUP_THREADS": 2, "TIDEGAUGE_EXPORT_THREADS": 2, "TIDEGAUGE_SEARCH_THREADS": 1,
    "TIDEGAUGE_PAGE_THREADS": 1, "TIDEGAUGE_EXPORTS": 5, "TIDEGAUGE_EXPORTS_EACH": 4, "TIDEGAUGE_WAITS_EACH": 200,
    "TIDEGAUGE_MAX_WAIT_MS": 60_000,
}  # fmt: skip
FEW_WAITS = {
    "TIDEGAUGE_WAITS_EACH": 3, "TIDEGAUGE_WAITS": 4, "TIDEGAUGE_MAX_WAIT_MS": 600_000,
    "TIDEGAUGE_STREAM_MIN_BYTES_PER_SECOND": 100_000_000, "TIDEGAUGE_STREAM_IDLE_MS": 3_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def few_threads_process(django_db_setup, django_db_blocker, tmp_path_factory):
    with django_db_blocker.unblock(), web_server(tmp_path_factory.mktemp("few_threads"), **FEW_THREADS) as server:
        yield server


@pytest.fixture(scope="module")
def few_waits_process(django_db_setup, django_db_blocker, tmp_path_factory):
    """It has no patience with slow readers either."""
    with django_db_blocker.unblock(), web_server(tmp_path_factory.mktemp("few_waits"), **FEW_WAITS) as server:
        yield server


@pytest.fixture
def few_threads(few_threads_process) -> Server:
    return few_threads_process


@pytest.fixture
def few_waits(few_waits_process) -> Server:
    return few_waits_process


@pytest.fixture
def keys(lasting) -> tuple[str, str]:
    return create_api_key("one", ["read"])[1], create_api_key("another", ["read"])[1]


def lookup(key: str, **more: object) -> bytes:
    body = json.dumps(KEYS | more).encode()
    headers = {"Authorization": f"Bearer {key}", "Content_Type": "application/json", "Content_Length": str(len(body))}
    return request("POST", LOOKUP, body, **headers)


def found(server: Server, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    with connected(server.port) as client:
        client.sendall(sent)
        return one_of(client)


@contextmanager
def unread_exports(server: Server, key: str, count: int):
    """Begin exports whose clients read their first bytes only; give these."""
    with ExitStack() as clients:
        exports = [clients.enter_context(asked(server.port, EXPORT, key)) for _ in range(count)]
        yield [export.recv(4_000) for export in exports]


def begun(server: Server, key: str) -> bytes:
    """Begin an export, and return its first bytes."""
    with asked(server.port, EXPORT, key) as client:
        return client.recv(4_000)


class TestExports:
    def test_slow_ones_of_a_key_are_limited_and_leave_the_threads_to_others(self, large, keys, few_threads):
        one, another = keys
        with (
            unread_exports(few_threads, one, 32) as heads,
            unread_exports(few_threads, another, 2) as others,
        ):
            assert found(few_threads, lookup(another))[0] == 200
            eventually(lambda: snapshots(large) == 5)

        refused = [head for head in heads if b"HTTP/1.1 429 " in head]
        assert len(refused) == 28
        assert b"you have 4 exports running, which is your limit" in refused[0]
        assert b"retry-after: 1" in refused[0].lower()
        assert sum(b"HTTP/1.1 503 " in head for head in others) == 1

        eventually(lambda: snapshots(large) == 0)
        with unread_exports(few_threads, one, 1) as [head]:
            assert b"HTTP/1.1 200 " in head
        eventually(lambda: snapshots(large) == 0)

    @pytest.mark.processes
    def test_those_of_a_key_are_limited_over_processes_and_end_with_a_process_that_is_killed(
        self, large, keys, tmp_path
    ):
        limits = {"TIDEGAUGE_EXPORTS_EACH": 1, "TIDEGAUGE_SHARED_LIMITS": 1}
        with ExitStack() as stack:
            first, second = (stack.enter_context(web_server(tmp_path, **limits)) for _ in range(2))
            client = stack.enter_context(asked(first.port, EXPORT, keys[0]))
            assert b"HTTP/1.1 200 " in client.recv(4_000)
            assert b"HTTP/1.1 429 " in begun(second, keys[0])
            assert b"HTTP/1.1 200 " in begun(second, keys[1])

            os.killpg(first.pid, signal.SIGKILL)
            eventually(lambda: b"HTTP/1.1 200 " in begun(second, keys[0]))

    def test_a_trickling_reader_is_ended_though_it_never_pauses_for_long(self, large, keys, few_waits):
        log = few_waits.process.log
        with asked(few_waits.port, EXPORT, keys[0]) as client:
            assert client.recv(1_000)
            client.settimeout(0.05)

            eventually(lambda: _trickle(client) and "a streamed answer was ended" in log.read_text())
            eventually(lambda: snapshots(large) == 0)

    def test_the_connections_of_a_process_have_a_bound(self, large, keys, few_threads):
        with ExitStack() as clients:
            exports = []
            for _ in range(20):
                for sent in (lookup(keys[0]), lookup(keys[0], min_txid=9_999), request("GET", "/login")):
                    client = clients.enter_context(connected(few_threads.port))
                    client.sendall(sent)
                exports.append(clients.enter_context(asked(few_threads.port, EXPORT, keys[0])))
            assert found(few_threads, lookup(keys[1]))[0] == 200
            assert all(export.recv(1_000) for export in exports)

            eventually(lambda: snapshots(large) == 4)
            # Lookups, exports, searches, pages, checks; and the exports themselves.
            assert _connections(large, few_threads) <= 2 + 2 + 1 + 1 + 2 + 4
        eventually(lambda: snapshots(large) == 0)


def _answered(clients: list[socket.socket]) -> list[socket.socket]:
    return select.select(clients, [], [], 0)[0]


def _trickle(client: socket.socket) -> bool:
    with suppress(TimeoutError):
        client.recv(1)
    return True


def _connections(flights, server: Server) -> int:
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    return flights.conn.execute(count, [server.session_name]).fetchone()[0]


class TestWaits:
    def test_two_hundred_of_them_hold_no_thread_and_all_see_the_batch(self, lasting, keys, few_threads):
        one, another = keys
        behind = lasting.commit({("JFK", "AA"): 1}).txid
        with ExitStack() as stack:
            waiting = [stack.enter_context(connected(few_threads.port)) for _ in range(200)]
            for client in waiting:
                client.sendall(lookup(one, min_txid=behind + 1))

            assert found(few_threads, lookup(another))[0] == 200

            lasting.commit({("JFK", "AA"): 1})
            answers = [one_of(client) for client in waiting]

        assert {status for status, _, _ in answers} == {200}
        assert {json.loads(body)["txid"] for _, _, body in answers} == {behind + 1}

    def test_those_of_a_key_are_limited_and_so_are_all_together(self, lasting, keys, few_waits):
        one, another = keys
        behind = lasting.commit({("JFK", "AA"): 1}).txid
        with ExitStack() as stack:

            def waiting(key: str, count: int) -> list[socket.socket]:
                clients = [stack.enter_context(connected(few_waits.port)) for _ in range(count)]
                for client in clients:
                    client.sendall(lookup(key, min_txid=behind + 1))
                return clients

            of_one = waiting(one, 5)
            eventually(lambda: len(_answered(of_one)) == 2)
            of_another = waiting(another, 3)
            eventually(lambda: len(_answered(of_another)) == 2)
            refused = _answered(of_one + of_another)
            answers = [one_of(client) for client in refused]

            lasting.commit({("JFK", "AA"): 1})
            held = [one_of(client) for client in of_one + of_another if client not in refused]

        assert [status for status, _, _ in answers] == [429, 429, 503, 503]
        assert b"this process has 4 waits running" in answers[-1][2]
        assert [status for status, _, _ in held] == [200] * 4

    def test_one_whose_client_has_gone_ends(self, lasting, keys, few_waits):
        with ExitStack() as stack:
            clients = [stack.enter_context(connected(few_waits.port)) for _ in range(4)]
            for client in clients:
                client.sendall(lookup(keys[0], min_txid=9_999))
            eventually(lambda: len(_answered(clients)) == 1)
            held = set(clients) - set(_answered(clients))
            assert found(few_waits, lookup(keys[0], min_txid=9_999, wait_ms=1_000))[0] == 429

            held.pop().close()

            eventually(lambda: found(few_waits, lookup(keys[0], min_txid=9_999, wait_ms=1_000))[0] == 409)

    def test_one_that_ends_without_its_batch_is_logged_once(self, lasting, keys, web_process):
        status, headers, body = found(web_process, lookup(keys[0], min_txid=9_999, wait_ms=300))
        lines = web_process.process.log.read_text().splitlines()
        logged = [line for line in lines if '"route":"lookup:lookup"' in line and headers["x-request-id"] in line]

        assert (status, headers["retry-after"]) == (409, "1")
        assert b"batch 9999 was not committed within 300 ms" in body
        assert len(logged) == 1


class TestSearches:
    def test_those_of_a_client_are_limited(self, settings, filled, api):
        settings.TIDEGAUGE_SEARCHES_EACH = 1
        path = "/api/v1/states/flights_by_carrier/entries"

        assert api.get(f"{path}?search=J").status_code == 200
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SEARCHES, "_held", type(SEARCHES._held)({_client(api): 1}))
            refused = api.get(f"{path}?search=J")
            unlimited = api.get(path)

        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert unlimited.status_code == 200

    @pytest.mark.parametrize("asked", ["order_by=-flights", "where=flights>=0", "search=J"])
    def test_their_further_pages_are_searches_too(self, settings, filled, api, asked):
        settings.TIDEGAUGE_SEARCHES_EACH = 1
        path = "/api/v1/states/flights_by_carrier/entries"
        following = f"cursor={api.get(f'{path}?limit=1&{asked}').json()['next']}"

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SEARCHES, "_held", type(SEARCHES._held)({_client(api): 1}))
            refused = api.get(f"{path}?{following}")

        assert refused.status_code == 429
        assert api.get(f"{path}?{following}").status_code == 200
        assert pool_of({"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": following}) == "searches"

    def test_a_range_that_is_too_large_is_not_sorted(self, settings, filled, api):
        path = "/api/v1/states/flights_by_carrier/entries"
        following = api.get(f"{path}?order_by=-flights&limit=1").json()["next"]
        settings.TIDEGAUGE_SORT_MAX_KEYS = 59

        for query in ("order_by=flights", "order_by=flights&where=flights>=0", f"cursor={following}"):
            refused = api.get(f"{path}?{query}")
            assert (refused.status_code, refused.json()["code"]) == (400, "range_too_large")
        assert api.get(f"{path}?order_by=flights&prefix=JFK").status_code == 200
        settings.TIDEGAUGE_SORT_MAX_KEYS = 0
        assert api.get(f"{path}?order_by=flights").status_code == 200

    def test_further_pages_in_key_order_are_none(self, filled, api):
        path = "/api/v1/states/flights_by_carrier/entries"
        following = f"cursor={api.get(f'{path}?limit=1').json()['next']}"

        assert pool_of({"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": following}) == "lookups"

    def test_one_looks_at_a_limited_number_of_keys(self, large, keys, web_process):
        cursor, looked, pages = "", [], 0
        while pages < 10:
            path = f"/api/v1/states/large/entries?limit=5&{cursor or 'search=19999'}"
            with asked(web_process.port, path, keys[0]) as client:
                page = json.loads(all_of(client).partition(b"\r\n\r\n")[2])
            looked += [entry["key"][0] for entry in page["entries"]]
            pages += 1
            if page["next"] is None:
                break
            cursor = f"cursor={page['next']}"

        assert looked == [19_999, *range(199_990, 200_000)]
        assert pages >= 4  # of 50,000 keys each


def _client(api) -> str:
    return f"key {ApiKey.objects.get(name='reader').pk}"


def test_what_has_ended_is_no_longer_counted(settings):
    settings.TIDEGAUGE_THINGS, settings.TIDEGAUGE_THINGS_EACH = 2, 1
    things = Concurrency("things")

    with things.held("a"):
        with pytest.raises(TooManyAtOnceError):
            things._take("a")
        with things.held("b"), pytest.raises(BusyError):
            things._take("c")

    with things.held("a"), things.held("c"):
        pass
    assert not things._held
