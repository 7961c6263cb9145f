"""The connections of the blocking client, shared by threads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from tests.harness.waiting import eventually
from tests.webapp.client.scripted_server import STATES, scripted_server
from tidegauge.client import Client, NoAnswerError
from tidegauge.client.connection import http_options
from tidegauge.client.pool import Pool

pytestmark = pytest.mark.long


@pytest.fixture
def frequent_switches():
    """Threads change after each few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def server():
    with scripted_server(STATES) as server:
        yield server


@pytest.fixture
def pool():
    pool = Pool(http_options(1, verify=True, proxy=None))
    yield pool
    pool.close()


def send(pool, server, seconds=5.0):
    return pool.send(method="GET", url=server.url, timeout=httpx.Timeout(seconds))


@pytest.mark.usefixtures("frequent_switches")
def test_no_connection_is_closed_while_another_thread_waits_on_it(server):
    """httpx's own pool fails here in one to ten of these requests."""
    with Client(server.url, "", connections=3, retries=0) as client, ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: client.states(), range(6_000)))

    assert found == [[]] * 6_000
    assert server.most_at_once <= 3


def test_a_connection_is_free_again_when_its_answer_is_closed(pool, server):
    held = send(pool, server)

    with pytest.raises(httpx.PoolTimeout, match=r"1 connections were in use for 0\.1 s"):
        send(pool, server, seconds=0.1)
    held.close()
    held.close()
    with closing(send(pool, server)), pytest.raises(httpx.PoolTimeout):
        send(pool, server, seconds=0.1)


def test_a_connection_is_free_again_after_a_failure(pool, server):
    for _ in range(3):
        with pytest.raises(httpx.ConnectError):
            pool.send(method="GET", url="http://127.0.0.1:1", timeout=httpx.Timeout(5.0))

    with closing(send(pool, server)) as answer:
        assert answer.read() == b'{"states": []}'


def test_who_waits_longest_gets_the_next_connection(pool, server):
    with ThreadPoolExecutor(1) as threads:
        with closing(send(pool, server)):
            waiting = threads.submit(send, pool, server)
            eventually(lambda: pool._waiting)
        with pytest.raises(httpx.PoolTimeout):
            send(pool, server, seconds=0.1)

    waiting.result().close()


def test_a_closed_client_sends_nothing(server):
    client = Client(server.url, "", retries=0)
    client.close()

    with pytest.raises((NoAnswerError, RuntimeError)):
        client.states()
    assert server.requests == []
