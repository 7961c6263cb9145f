"""A pipeline whose commits persist, a web process, and both clients of it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.webapp.client.both_clients import BOTH
from tests.webapp.committed_flights import committed_flights
from tests.webapp.flights import Flights
from tests.webapp.web_server import Server
from tidegauge.webapp.accounts.services import create_api_key


@pytest.fixture
def flights(transactional_db) -> Iterator[Flights]:
    """Two batches are committed: 60 keys of flights_by_carrier."""
    with committed_flights() as pipeline:
        yield pipeline


@pytest.fixture
def web(web_process: Server) -> Server:
    return web_process


@pytest.fixture
def api_key(transactional_db) -> str:
    return create_api_key("program", ["read"])[1]


@pytest.fixture(params=BOTH, ids=["sync", "async"])
def connect(request, api_key) -> Iterator[Callable[..., Any]]:
    """Makes a client, sync or async: an address, options. It is closed after the test."""
    with ExitStack() as stack:

        def connect(url: str, key: Any = api_key, **options: Any) -> Any:
            client = request.param(url, key, **options)
            stack.callback(client.close)
            return client

        yield connect


@pytest.fixture
def client(web, flights, connect) -> Any:
    return connect(web.url)


@pytest.fixture(scope="module")
def read_key(module_database: None) -> Iterator[str]:
    """An API key, and committed flights that no test of the module changes."""
    with committed_flights():
        yield create_api_key("program", ["read"], rate=0)[1]


@pytest.fixture(params=BOTH, ids=["sync", "async"])
def reading(request, web: Server, read_key: str) -> Iterator[Any]:
    """A client for a test that only reads."""
    client = request.param(web.url, read_key)
    yield client
    client.close()
