"""The front of a real web process: clients that are silent, slow or many, and what HTTP promises the others."""

import asyncio
import gzip
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from contextvars import Context
from pathlib import Path

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from tests.harness.waiting import eventually
from tests.webapp.web_server import Server, all_of, asked, connected, one_of, request, web_server
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.core import multiprocess
from tidegauge.webapp.serving.front import Front
from tidegauge.webapp.serving.streamed import StreamedAnswer

ROOT = Path(__file__).parents[3]
LOOKUP = "/api/v1/states/flights_by_carrier/lookup"
BODY = json.dumps({"keys": [["JFK", "AA"]]}).encode()


@pytest.fixture
def key(lasting) -> str:
    return create_api_key("reader", ["read"])[1]


@pytest.fixture
def served(web_process) -> Server:
    return web_process


@pytest.fixture(scope="module")
def impatient_process(django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[Server]:
    """A web process that waits two seconds for a body, and three for the headers."""
    folder, options = tmp_path_factory.mktemp("impatient"), ("--http1-header-read-timeout", "3000")
    with django_db_blocker.unblock(), web_server(folder, options, TIDEGAUGE_REQUEST_SECONDS=2) as server:
        yield server


def lookup(key: str, body: bytes = BODY, **headers: str) -> bytes:
    length = {} if "Transfer_Encoding" in headers else {"Content_Length": str(len(body))}
    sent = {"Authorization": f"Bearer {key}", "Content_Type": "application/json"} | length | headers
    return request("POST", LOOKUP, body, **sent)


def found(port: int, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    with connected(port) as client:
        client.sendall(sent)
        return one_of(client)


def test_bodies_that_do_not_arrive_hold_no_thread_and_end(impatient_process, key):
    with ExitStack() as clients:
        silent = [clients.enter_context(connected(impatient_process.port)) for _ in range(100)]
        for client in silent:
            client.sendall(lookup(key, b"", Content_Length="100"))

        assert found(impatient_process.port, lookup(key))[0] == 200
        assert found(impatient_process.port, request("GET", "/healthz"))[0] == 200
        assert found(impatient_process.port, request("GET", "/login"))[0] == 200
        answers = [all_of(client) for client in silent]

    assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers)
    assert b"the body did not arrive within 2 seconds" in answers[0]


def test_a_body_that_arrives_byte_by_byte_ends_at_the_same_limit(impatient_process, key):
    with connected(impatient_process.port) as client:
        client.sendall(lookup(key, b"", Content_Length="1000000"))
        client.settimeout(0.1)

        assert any(_is_refused_after_a_byte_more(client) for _ in range(200))


def _is_refused_after_a_byte_more(client: socket.socket) -> bool:
    try:
        client.sendall(b" ")
        return client.recv(1_000).startswith(b"HTTP/1.1 408 ")
    except TimeoutError:
        return False


def test_thousands_of_silent_sockets_leave_the_process_its_health_check_and_are_closed(impatient_process, key):
    with ExitStack() as clients:
        silent = [clients.enter_context(connected(impatient_process.port)) for _ in range(1_300)]

        assert found(impatient_process.port, request("GET", "/healthz"))[0] == 200
        assert found(impatient_process.port, lookup(key))[0] == 200
        assert all(all_of(client) == b"" for client in silent)


def test_bodies_of_strangers_that_never_end_leave_room_for_those_of_keys(impatient_process, key):
    with ExitStack() as clients:
        for _ in range(40):
            client = clients.enter_context(connected(impatient_process.port))
            with suppress(OSError):  # refused while it is sent
                client.sendall(
                    lookup("tmk_00000000_x", b" " * (4 * 1024 * 1024 - 1), Content_Length=str(4 * 1024 * 1024))
                )

        assert found(impatient_process.port, lookup(key))[0] == 200


def test_a_body_over_the_limit_is_refused_before_it_is_read(served, key):
    with connected(served.port) as client:
        client.sendall(lookup(key, b"", Content_Length="5000000"))
        answer = all_of(client)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"the body is over 4194304 bytes; send less at a time"' in answer


def test_chunked_and_compressed_bodies_are_read(served, key):
    parts = [BODY[:5], BODY[5:]]
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"

    assert found(served.port, lookup(key, chunked, Transfer_Encoding="chunked"))[0] == 200
    assert found(served.port, lookup(key, gzip.compress(BODY), Content_Encoding="gzip"))[0] == 200


async def thread_of(headers: dict[str, str], path: str = "/api/v1/states") -> str:
    """Return the name of the thread that answers a request with these headers."""
    sent: list[dict[str, object]] = []

    async def receive():
        await asyncio.Event().wait()

    def handler(environ, start_response):
        start_response("200 OK", [])
        return HttpResponse(threading.current_thread().name)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "http_version": "1.1"}
    client = {"scheme": "http", "client": ("192.0.2.7", 1)}
    client["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
    async with asyncio.timeout(20):
        await Front(handler)(scope | client, receive, sent.append)
    return sent[1]["body"].decode()


def test_strangers_have_threads_of_their_own_and_people_and_keys_do_not_wait_for_them(key, client, django_user_model):
    stranger = {"cookie": "sessionid=made-up"}
    client.force_login(django_user_model.objects.create_user("ann"))
    client.get("/alerts/")
    ann = {"cookie": f"sessionid={client.cookies['sessionid'].value}"}

    threads = [asyncio.run(thread_of(headers)) for headers in (stranger, ann, {"authorization": f"Bearer {key}"})]

    assert threads == ["strangers-1", "lookups-1", "lookups-1"]
    assert asyncio.run(thread_of({"authorization": f"Bearer {key}"}, "/login")) == "strangers-1"


def test_a_stream_whose_client_is_gone_is_not_ended_as_if_it_were_whole():
    sent: list[dict[str, object]] = []

    async def send(message):
        sent.append(message)

    async def run(job):
        await asyncio.sleep(0)
        return job()

    async def stream():
        disconnected = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(disconnected.set_result, None)
        answer = StreamedAnswer({"type": "http.response.start"}, StreamingHttpResponse(iter([b"x"] * 3)))
        await answer.send_to(send, disconnected, run, Context())

    asyncio.run(stream())

    assert {"type": "http.response.body", "body": b""} not in sent


def test_a_client_that_expects_100_continue_gets_it_and_then_its_answer(served, key):
    with connected(served.port) as client:
        client.sendall(lookup(key, b"", Content_Length=str(len(BODY)), Expect="100-continue"))
        assert client.recv(1_000).startswith(b"HTTP/1.1 100 Continue")
        client.sendall(BODY)

        assert one_of(client)[0] == 200


@pytest.mark.core
def test_a_connection_serves_one_request_after_the_other(served, key):
    with connected(served.port) as client:
        answers = []
        for sent in (lookup(key), request("GET", "/healthz"), lookup(key), lookup("wrong"), lookup(key)):
            client.sendall(sent)
            answers.append(one_of(client)[0])

    assert answers == [200, 200, 200, 401, 200]


def test_an_answer_to_head_has_headers_and_no_body(served, key):
    with connected(served.port) as client:
        client.sendall(request("HEAD", "/healthz"))
        head = client.recv(10_000)
        client.sendall(lookup(key))

        assert one_of(client)[0] == 200
    assert b"200 OK" in head
    assert head.endswith(b"\r\n\r\n")


def test_the_request_id_and_cookies_reach_django(served, key):
    status, headers, _ = found(served.port, lookup(key, X_Request_ID="of-the-client"))
    twice = request("GET", "/login", Cookie="a=1").replace(b"\r\n\r\n", b"\r\nCookie: csrftoken=x\r\n\r\n")

    assert (status, headers["x-request-id"]) == (200, "of-the-client")
    assert found(served.port, twice)[0] == 200
    eventually(lambda: '"request_id":"of-the-client"' in served.process.log.read_text())


@pytest.mark.processes
def test_a_header_with_an_underscore_is_not_taken_for_a_forwarded_one(lasting, tmp_path):
    with web_server(tmp_path, ALLOWED_HOSTS="localhost", TIDEGAUGE_PROXIES=1, TIDEGAUGE_HTTPS=1) as server:
        forged = request("GET", "/login").replace(b"\r\n\r\n", b"\r\nX_Forwarded_Proto: https\r\n\r\n")
        forwarded = request("GET", "/login", X_Forwarded_Proto="https")

        assert found(server.port, forged)[0] == 301
        assert found(server.port, forwarded)[0] == 200


def test_a_path_keeps_what_is_percent_encoded(served):
    assert b"there is nothing at /api/v1/\xc3\xa9 x" in _of(served, "/api/v1/%C3%A9%20x")
    assert b" 404 " in _of(served, "/api/v1/%FF")


def _of(served: Server, path: str) -> bytes:
    with asked(served.port, path) as client:
        return all_of(client)


def test_static_files_are_served_whole(served):
    head, _, body = _of(served, "/static/dashboard/favicon.svg").partition(b"\r\n\r\n")

    assert b"200 OK" in head
    assert body.strip().endswith(b"</svg>")


@pytest.mark.processes
def test_a_request_under_way_is_answered_after_sigterm(key, tmp_path):
    with web_server(tmp_path) as server:
        with connected(server.port) as client:
            client.sendall(lookup(key, b"", Content_Length=str(len(BODY)), Expect="100-continue"))
            assert client.recv(1_000).startswith(b"HTTP/1.1 100 Continue")
            os.kill(server.pid, signal.SIGTERM)
            eventually(lambda: "Shutting down" in server.process.log.read_text())
            client.sendall(BODY)

            assert one_of(client)[0] == 200
        eventually(lambda: server.process.exit_code() == 0)


@pytest.mark.processes
def test_a_worker_that_is_killed_is_replaced(key, tmp_path):
    with web_server(tmp_path) as server:
        killed = worker_of(server)
        os.kill(killed, signal.SIGKILL)

        eventually(lambda: worker_of(server) != killed)
        eventually(lambda: status_of(server, key) == 200)


def test_workers_know_of_the_callers_of_each_other(monkeypatch, tmp_path):
    monkeypatch.setenv(multiprocess.VARIABLE, str(tmp_path))
    one, other = (Front(lambda environ, start_response: HttpResponse())._contention for _ in range(2))
    one.note("a")
    other.note("a")
    alone = one.is_there

    other.note("b")

    assert (alone, one.is_there) == (False, True)


def worker_of(server: Server) -> int:
    return int(re.findall(r"worker-1 with PID: (\d+)", server.process.log.read_text())[-1])


def status_of(server: Server, key: str) -> int:
    try:
        with connected(server.port) as client:
            client.sendall(lookup(key))
            return one_of(client)[0]
    except OSError:
        return 0  # nobody listens yet
