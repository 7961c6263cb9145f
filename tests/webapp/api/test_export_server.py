"""Streams of a real server process: its memory, and what is left when a client disconnects."""

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.webapp.api.large import ROWS, snapshots
from tests.webapp.web_server import Server, all_of, asked, connected, eventually, request, web_server
from webapp.accounts.services import create_api_key

STREAM = "/api/v1/states/large/export.csv"


@pytest.fixture
def served(large, tmp_path) -> Iterator[Server]:
    with web_server(tmp_path) as server:
        yield server


def peak_mb(served: Server) -> float:
    """Return the peak memory of the largest process of the server, in MB."""
    pids = [served.pid, *map(int, Path(f"/proc/{served.pid}/task/{served.pid}/children").read_text().split())]
    marks = [re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()) for pid in pids]
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
    before = peak_mb(served)

    with asked(served.port, STREAM, key) as client:
        size, last = received(client)

    assert last.endswith(b"0\r\n\r\n")
    assert size > ROWS * 200
    assert peak_mb(served) - before < 30
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
    before = peak_mb(served)

    with asked(served.port, STREAM, key) as client:
        assert client.recv(10_000)
        time.sleep(2)  # long enough to read all of it

        assert snapshots(large) == 1
        assert peak_mb(served) - before < 30
