"""The client that lookups are measured with: it takes each answer whole, counts them, and accepts no other status."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from benchmarks.http_client import ask_all, once, post


class Answers(BaseHTTPRequestHandler):
    """Answers what the path says, and notes what was asked."""

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

    def known(self):
        self.send_response(304)
        self.send_header("ETag", '"1"')
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def port():
    Answers.bodies.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "status", "length"), [("/long", 200, 1_000_000), ("/chunked", 200, 13), ("/known", 304, 0)]
)
def test_an_answer_is_taken_whole(port, path, status, length):
    answer = once(port, post(path, b"{}"))

    assert (answer.status, len(answer.body)) == (status, length)


def test_headers_are_told_by_their_lower_names(port):
    assert once(port, post("/known", b"{}")).headers["etag"] == '"1"'


@pytest.mark.parametrize("connections", [1, 4, 20])
def test_all_are_asked_in_turn_and_counted(port, connections):
    asked = ask_all(port, [post("/known", b"a"), post("/known", b"b")], 11, 304, connections)

    assert asked == 11
    assert sorted(Answers.bodies) == [b"a"] * 6 + [b"b"] * 5


def test_another_status_ends_the_measurement(port):
    with pytest.raises(RuntimeError, match=r"expected status 200, got b'HTTP/1\.1 304"):
        ask_all(port, [post("/known", b"a")], 3, 200, 1)
