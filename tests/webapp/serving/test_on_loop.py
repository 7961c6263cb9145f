"""Lookups on the event loop have the answers of Django's handler, and all others are left to a thread."""

import asyncio
import io
import time
from collections.abc import Iterator
from typing import Any

import orjson
import psycopg
import pytest
from django.db import connection

from tests.webapp.both_ways import ASKED, LOOKUP, STATE, Requests
from tidegauge.state_backends import session
from tidegauge.webapp.accounts import authentication, rate_limits
from tidegauge.webapp.accounts.issuing import issue
from tidegauge.webapp.accounts.models import ApiKey
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.accounts.throttling import TAKEN
from tidegauge.webapp.api.on_loop import LoopView
from tidegauge.webapp.catalog import loop_connections, loop_turns, readers
from tidegauge.webapp.serving.on_loop import LoopAnswer

ONE_KEY = f'{STATE}/keys?key=["JFK","C01"]'


@pytest.fixture
def requests(lasting) -> Iterator[Requests]:
    """Requests of which the API key and both states are known to the process."""
    authentication.clear_cache()
    found = Requests(create_api_key("reader", ["read"])[1], lasting.conn)
    warm(found)
    yield found
    found.close()
    rate_limits.reset()


def warm(requests: Requests) -> None:
    for state in ("flights_by_carrier", "flights_by_hour", "totals"):
        assert requests.in_thread(f"/api/v1/states/{state}/lookup", {"keys": []}).status == 200


HOURS = {"keys": [["2013-01-01T10:00:00Z", "JFK"], ["2013-01-01T10:00:00+00:00", "EWR"]]}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        pytest.param(LOOKUP, ASKED, {}, id="keys"),
        pytest.param(LOOKUP, {"keys": []}, {}, id="no keys"),
        pytest.param(LOOKUP, ASKED | {"measures": ["max_delay", "flights"]}, {}, id="measures"),
        pytest.param(LOOKUP, ASKED | {"min_txid": 2}, {}, id="a batch that is committed"),
        pytest.param("/api/v1/states/flights_by_hour/lookup", HOURS, {}, id="two partitions, and times"),
        pytest.param("/api/v1/states/totals/lookup", {"keys": [[]]}, {}, id="no key column"),
        pytest.param(LOOKUP, ASKED, {"X_Request_ID": "mine-1"}, id="a request id"),
        pytest.param(LOOKUP, ASKED, {"Content_Type": "application/json; charset=utf-8"}, id="a charset"),
        pytest.param(LOOKUP, ASKED, {"Origin": "https://pages.example"}, id="a page that may"),
        pytest.param(LOOKUP, ASKED, {"Origin": "https://other.example"}, id="a page that may not"),
        pytest.param(LOOKUP, ASKED, {"X_Forwarded_Proto": "https"}, id="behind a proxy"),
        pytest.param(ONE_KEY, None, {}, id="one key"),
        pytest.param(f"{ONE_KEY}&measures=flights&min_txid=2", None, {}, id="one key and parameters"),
        pytest.param("/api/v1/states/totals/keys", None, {}, id="the only key"),
    ],
)
def test_an_answer_is_that_of_a_thread(requests, settings, path, body, headers):
    settings.TIDEGAUGE_CORS_ORIGINS = ["https://pages.example"]

    here = requests.on_loop(path, body, **headers)

    assert here == requests.in_thread(path, body, **headers)
    assert here.status == 200
    again = requests.on_loop(path, body, If_None_Match=f"W/{here.headers['ETag']}", **headers)
    assert again == requests.in_thread(path, body, If_None_Match=here.headers["ETag"], **headers)
    assert (again.status, again.body) == (304, b"")


def test_a_wait_for_a_batch_takes_no_thread(requests, lasting):
    def later() -> None:
        asyncio.get_running_loop().call_later(0.1, lasting.commit, {("JFK", "C01"): 5})

    async def answered() -> tuple[LoopAnswer | None, float]:
        later()
        begun = time.monotonic()
        environ, data = requests.environ(LOOKUP, ASKED | {"min_txid": 3, "wait_ms": 5_000})
        return await requests.answer(environ, data), time.monotonic() - begun

    here, seconds = requests.runner.run(answered())

    assert (here.status, orjson.loads(here.body)["txid"]) == (200, 3)
    assert 0.1 <= seconds < 4


def test_a_wait_that_is_over_is_answered_in_a_thread(requests):
    begun = time.monotonic()

    assert requests.on_loop(body=ASKED | {"min_txid": 3, "wait_ms": 200}) is None
    assert time.monotonic() - begun >= 0.2


def test_another_batch_has_another_answer(requests, lasting):
    before = requests.on_loop()
    lasting.commit({("JFK", "C01"): 5})

    after = requests.on_loop(If_None_Match=before.headers["ETag"])

    assert (after.status, orjson.loads(after.body)["txid"]) == (200, 3)
    assert after == requests.in_thread()


def test_a_large_answer_is_compressed_for_who_takes_that(requests):
    body = {"keys": [["JFK", f"C{number:02}"] for number in range(100)]}

    here = requests.on_loop(body=body, Accept_Encoding="gzip")
    there = requests.in_thread(body=body, Accept_Encoding="gzip")

    # Both lengths differ by the random bytes of Django's compression.
    assert here.headers | {"Content-Length": ""} == there.headers | {"Content-Length": ""}
    assert here.headers["Content-Encoding"] == "gzip"


def test_an_api_key_or_token_that_is_confined(requests):
    confined = create_api_key("confined", ["read", "issue_tokens"], states=["flights_by_carrier"], key_prefix=["JFK"])[
        1
    ]
    for requests.key in (confined, issue(ApiKey.objects.get(name="confined")).text):
        assert requests.in_thread().status == 200

        assert requests.on_loop() == requests.in_thread()
        for path, body in (
            (LOOKUP, {"keys": [["EWR", "C01"]]}),
            ("/api/v1/states/flights_by_hour/lookup", HOURS),
            (f'{STATE}/keys?key=["EWR","C01"]', None),
        ):
            assert requests.on_loop(path, body) is None
            assert requests.in_thread(path, body).status == 403


def test_an_api_key_without_the_scope_is_left_to_a_thread(requests):
    requests.key = create_api_key("keeper", ["maintain"])[1]

    assert requests.in_thread().status == 403
    assert requests.on_loop() is None


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/api/v1/states/unknown/lookup", ASKED, {}, 404),
        (LOOKUP, b"{", {}, 400),
        (LOOKUP, {"keys": [["JFK"]]}, {}, 400),
        (LOOKUP, ASKED | {"measures": ["none"]}, {}, 400),
        (LOOKUP, ASKED | {"key": []}, {}, 400),
        (LOOKUP, ASKED | {"combine": True}, {}, 200),
        (LOOKUP, ASKED | {"at_txid": 1}, {}, 200),
        (LOOKUP, {"keys": [["JFK", str(number)] for number in range(501)]}, {}, 200),
        (LOOKUP, ASKED | {"min_txid": 9, "wait_ms": 0}, {}, 409),
        (LOOKUP, ASKED | {"epoch": "other"}, {}, 409),
        (f"{LOOKUP}?format=json", ASKED, {}, 400),
        (LOOKUP, ASKED, {"Host": "other.example"}, 400),
        (LOOKUP, ASKED, {"Accept": "text/csv"}, 406),
        (LOOKUP, ASKED, {"Content_Type": "text/plain"}, 415),
        (LOOKUP, ASKED, {"Authorization": ""}, 401),
        (LOOKUP, ASKED, {"Authorization": "Bearer tmk_00000000_none"}, 401),
        (LOOKUP, ASKED, {"method": "PUT"}, 405),
        (f'{STATE}/keys?key=["JFK","none"]', None, {}, 404),
        (f'{STATE}/keys?key=["JFK"]', None, {}, 400),
        (ONE_KEY, None, {"method": "HEAD"}, 200),
        (f"{STATE}/entries", None, {}, 200),
        ("/healthz", None, {}, 200),
        ("/api/v1/lookup", {"lookups": [{"state": "totals", "keys": [[]]}]}, {}, 200),
    ],
)
def test_others_are_left_to_a_thread(requests, path, body, headers, status):
    assert requests.on_loop(path, body, **headers) is None

    assert requests.in_thread(path, body, **headers).status == status


def test_a_refused_request_is_counted_and_logged_once(requests, request_lines):
    """What the loop has taken from the rate limit counts for the thread."""
    environ, data = requests.environ(LOOKUP, {"keys": [["JFK"]]})
    already = len(request_lines())

    assert requests.answered_on_loop(environ, data) is None
    assert len(request_lines()) == already
    _, taken = environ[TAKEN]
    environ[TAKEN] = "this API key", taken._replace(remaining=12_345)

    started: list[Any] = []
    requests.handler(environ | {"wsgi.input": io.BytesIO(data)}, lambda *start: started.extend(start))
    assert "r=12345" in dict(started[1])["RateLimit"]
    assert len(request_lines()) == already + 1


def test_an_answer_is_logged(requests, request_lines):
    requests.on_loop(X_Request_ID="mine-1")

    line = request_lines()[-1]
    assert (line["request_id"], line["route"], line["actor"]) == ("mine-1", "lookup:lookup", "API key reader")
    assert (line["status"], line["state"], line["keys"]) == (200, "flights_by_carrier", 3)


def test_the_rate_limit_of_an_api_key_holds_on_the_loop(requests):
    requests.key = create_api_key("slow", ["read"], rate=60, burst=4)[1]
    requests.in_thread()

    answers = [requests.on_loop() for _ in range(5)]

    assert [answer is not None for answer in answers] == [True] * 3 + [False] * 2
    assert requests.in_thread().status == 429


def test_what_the_process_does_not_know_is_read_in_a_thread(requests, monkeypatch):
    readers.clear_cache()
    assert requests.on_loop() is None
    assert requests.in_thread().status == 200
    assert requests.on_loop() is not None

    authentication.clear_cache()
    assert requests.on_loop() is None
    assert requests.in_thread().status == 200

    ApiKey.objects.update(revoked_at="2020-01-01T00:00Z")
    monkeypatch.setattr(authentication.time, "monotonic", lambda: 1e9)
    assert requests.on_loop() is None


def test_a_reader_is_checked_on_the_loop(requests, monkeypatch):
    monkeypatch.setattr(readers, "CHECK_AHEAD_SECONDS", 0)
    checks, check = [], readers.checking
    monkeypatch.setattr(readers, "checking", lambda name: checks.append(name) or check(name))

    here = [requests.on_loop(), requests.on_loop(ONE_KEY, None)]

    assert here == [requests.in_thread(), requests.in_thread(ONE_KEY, None)]
    assert len(checks) >= 2


def test_a_failure_on_the_loop_is_logged_and_left_to_a_thread(requests, monkeypatch, lines):
    monkeypatch.setattr(readers, "fresh_reader", lambda name: 1 / 0)

    assert requests.on_loop() is None
    assert "ZeroDivisionError" in lines()[-1]["exception"]


def test_a_large_body_is_left_to_a_thread(requests):
    assert requests.on_loop(body={"keys": [["JFK", "x" * 40_000]]}) is None


class TestConnections:
    def test_it_has_the_settings_of_readers(self, requests, settings):
        found = requests.runner.run(
            requests.answers._connections.first_row(
                "test",
                b"SELECT array_agg(current_setting(n)) FROM unnest(%s::text[]) n",
                [[*session.SETTINGS, "statement_timeout", "TimeZone"]],
            )
        )[0]

        conn = psycopg.connect(**readers.plain_parameters(), autocommit=True)
        session.prepare(conn)
        needed = [conn.execute("SELECT current_setting(%s)", [name]).fetchone()[0] for name in session.SETTINGS]
        conn.close()
        assert found == [*needed, f"{settings.TIDEGAUGE_STATEMENT_TIMEOUT_MS // 1000}s", "UTC"]

    def test_one_that_was_ended_is_opened_again(self, requests):
        pid = self.pid(requests)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

        assert requests.on_loop() is None
        assert requests.on_loop() == requests.in_thread()
        assert self.pid(requests) != pid

    def test_clients_take_turns(self, requests, settings):
        """Of one that asks 12 times and one that asks once, the second waits for one turn."""
        settings.TIDEGAUGE_LOOKUP_THREADS = 1
        pool, order = loop_connections.LoopConnections(), []

        async def ask(client: str) -> None:
            await pool.first_row(client, b"SELECT pg_sleep(0.01)", [])
            order.append(client)

        async def run() -> None:
            many = [asyncio.create_task(ask("many")) for _ in range(12)]
            await asyncio.sleep(0)
            await asyncio.gather(*many, asyncio.create_task(ask("one")))
            await pool.close()

        asyncio.run(run())

        assert order.index("one") <= 2

    def test_while_all_are_stuck_threads_answer(self, requests, settings, monkeypatch):
        """All connections wait for a lock on one state, so lookups in another one do not wait for them."""
        settings.TIDEGAUGE_LOOKUP_THREADS = 1
        pool = loop_connections.LoopConnections()

        async def run() -> list[Any]:
            locked = asyncio.create_task(pool.first_row("a", b"SELECT pg_sleep(1)", []))
            await asyncio.sleep(0)
            begun = time.monotonic()
            waiting = [asyncio.create_task(pool.first_row(client, b"SELECT 1", [])) for client in "abc"]
            found = await asyncio.gather(*waiting, return_exceptions=True)
            seconds = time.monotonic() - begun
            found += await asyncio.gather(pool.first_row("d", b"SELECT 1", []), return_exceptions=True)
            await locked
            monkeypatch.setattr(loop_turns.time, "monotonic", lambda: begun + 5)
            found.append(await pool.first_row("e", b"SELECT 7", []))
            await pool.close()
            return [seconds < 0.9, *found]

        in_time, *refused, last = asyncio.run(run())

        assert in_time
        assert [type(each) for each in refused] == [loop_turns.NoConnectionError] * 4
        assert last == (7,)

    def test_a_client_that_gives_up_gives_its_turn_back(self, requests, settings):
        settings.TIDEGAUGE_LOOKUP_THREADS = 1
        pool = loop_connections.LoopConnections()

        async def run() -> Any:
            first = asyncio.create_task(pool.first_row("a", b"SELECT pg_sleep(0.2)", []))
            await asyncio.sleep(0.05)
            second = asyncio.create_task(pool.first_row("b", b"SELECT 1", []))
            await asyncio.sleep(0)
            second.cancel()
            first.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
            row = await asyncio.wait_for(pool.first_row("c", b"SELECT 7", []), 5)
            await pool.close()
            return row

        assert asyncio.run(run()) == (7,)

    def test_one_whose_statement_was_given_up_is_closed(self, lasting):
        async def run() -> tuple[bool, bool]:
            conn = await loop_connections.LoopConnections()._connect()
            statement = asyncio.create_task(conn.execute("SELECT pg_sleep(5)"))
            await asyncio.sleep(0.1)
            was_watched = conn.is_watched
            statement.cancel()
            await asyncio.gather(statement, return_exceptions=True)
            return was_watched, conn.closed and not conn.is_watched

        assert asyncio.run(run()) == (True, True)

    def test_one_that_the_server_has_ended_is_not_watched(self, lasting):
        """The loop would call for it without end."""

        async def run() -> tuple[bool, bool]:
            conn = await loop_connections.LoopConnections()._connect()
            was_watched = conn.is_watched
            lasting.conn.execute("SELECT pg_terminate_backend(%s, 5000)", [conn.info.backend_pid])
            await asyncio.sleep(0.1)
            found = was_watched, conn.is_watched
            await conn.close()
            return found

        assert asyncio.run(run()) == (True, False)

    def test_a_statement_that_is_larger_than_the_socket_takes_arrives(self, requests):
        text = "x" * 20_000_000
        ask = requests.answers._connections.first_row("test", b"SELECT %s::text", [text])

        assert requests.runner.run(ask) == (text,)

    @staticmethod
    def pid(requests: Requests) -> int:
        ask = requests.answers._connections.first_row("test", b"SELECT pg_backend_pid()", [])
        return requests.runner.run(ask)[0]


def test_each_view_that_answers_here_says_which_requests():
    views = [LoopView, *LoopView.__subclasses__()]

    assert all("is_for_loop" in vars(view) and "on_loop" in vars(view) for view in views)
