"""The HTTP client of the lookup benchmark: it reads complete responses, counts them and accepts one status only."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from benchmarks.http_client import post, request_all, request_once


class Responses(BaseHTTPRequestHandler):
    """Responds as the path says, and records the request bodies."""

    protocol_version = "HTTP/1.1"
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self):
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        getattr(self, self.path[1:])()

    def long(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"x" * 1_000_000)

    def chunked(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (b"3\r\nabc\r\n", b"0\r\n\r\n"):
            self.wfile.write(part)

    def not_modified(self):
        self.send_response(304)
        self.send_header("ETag", '"1"')
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def port():
    Responses.bodies.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Responses)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "status", "length"), [("/long", 200, 1_000_000), ("/chunked", 200, 13), ("/not_modified", 304, 0)]
)
def test_a_response_is_read_completely(port, path, status, length):
    response = request_once(port, post(path, b"{}"))

    assert (response.status, len(response.body)) == (status, length)


def test_header_names_are_lower_case(port):
    assert request_once(port, post("/not_modified", b"{}")).headers["etag"] == '"1"'


@pytest.mark.parametrize("connections", [1, 4, 20])
def test_requests_are_sent_in_turn_and_counted(port, connections):
    count = request_all(port, [post("/not_modified", b"a"), post("/not_modified", b"b")], 11, 304, connections)

    assert count == 11
    assert sorted(Responses.bodies) == [b"a"] * 6 + [b"b"] * 5


def test_another_status_ends_the_measurement(port):
    with pytest.raises(RuntimeError, match=r"expected status 200, got b'HTTP/1\.1 304"):
        request_all(port, [post("/not_modified", b"a")], 3, 200, 1)
