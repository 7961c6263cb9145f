"""Streams of a real server process: its memory, and what is left when a client disconnects."""

import re
import socket
import time
from pathlib import Path

import pytest

from tests.harness.waiting import eventually
from tests.webapp.api.large import ROWS, snapshots
from tests.webapp.web_server import Server, all_of, asked, connected, request
from tidegauge.webapp.accounts.services import create_api_key

STREAM = "/api/v1/states/large/export?format=csv"


@pytest.fixture
def served(web_process) -> Server:
    return web_process


class Memory:
    """The peak memory of the largest process of a server, in MB, from now on."""

    def __init__(self, served: Server) -> None:
        children = Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text()
        self._folders = [Path("/proc", pid) for pid in (str(served.pid), *children.split())]
        for folder in self._folders:
            (folder / "clear_refs").write_text("5")  # the peak becomes what is used now: proc(5)
        self._before = self._peak()

    def grown(self) -> float:
        return self._peak() - self._before

    def _peak(self) -> float:
        marks = [re.search(r"VmHWM:\s+(\d+)", (folder / "status").read_text()) for folder in self._folders]
        return max(int(mark[1]) / 1024 for mark in marks if mark)


def received(client: socket.socket) -> tuple[int, bytes]:
    """Read to the end. Returns the number of bytes, and the last ones."""
    size, last = 0, b""
    while part := client.recv(65_536):
        size, last = size + len(part), (last + part)[-100:]
    return size, last


def test_a_large_stream_arrives_whole_and_takes_little_memory(large, served):
    _, key = create_api_key("reader", ["read"])
    with asked(served.port, f"{STREAM}&limit=1000", key) as client:
        received(client)
    memory = Memory(served)

    with asked(served.port, STREAM, key) as client:
        size, last = received(client)

    assert last.endswith(b"0\r\n\r\n")
    assert size > ROWS * 200
    assert memory.grown() < 30
    assert snapshots(large) == 0


def test_a_head_request_says_nothing_of_the_length(large, served):
    _, key = create_api_key("reader", ["read"])

    with connected(served.port) as client:
        client.sendall(request("HEAD", STREAM, Authorization=f"Bearer {key}", Connection="close"))
        head, _, body = all_of(client).lower().partition(b"\r\n\r\n")

    assert head.startswith(b"http/1.1 200")
    assert b"text/csv" in head
    assert (b"content-length" in head, body) == (False, b"")


def test_a_client_that_disconnects_leaves_no_snapshot(large, served):
    _, key = create_api_key("reader", ["read"])
    client = asked(served.port, STREAM, key)
    assert client.recv(10_000)
    eventually(lambda: snapshots(large) == 1)

    client.close()

    eventually(lambda: snapshots(large) == 0)


def test_a_client_that_reads_nothing_does_not_fill_the_memory(large, served):
    _, key = create_api_key("reader", ["read"])
    memory = Memory(served)

    with asked(served.port, STREAM, key) as client:
        assert client.recv(10_000)
        time.sleep(2)  # long enough to read all of it

        assert snapshots(large) == 1
        assert memory.grown() < 30
