"""A pipeline whose commits persist, a web process, and both clients of it."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connection

from tests.webapp.client.both_clients import BOTH
from tests.webapp.committed_flights import committed_flights
from tests.webapp.flights import Flights
from tests.webapp.web_server import Server, web_server
from webapp.accounts.services import create_api_key
from webapp.states import readers

# Low enough for a test to reach it.
MAX_KEYS = 25


@pytest.fixture
def flights(transactional_db) -> Iterator[Flights]:
    """Two batches are committed: 60 keys of flights_by_carrier."""
    with committed_flights() as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def web(django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[Server]:
    """One web process for all tests of a module, while their data comes and goes."""
    with django_db_blocker.unblock():
        settings = {"TIDEMARK_LOOKUP_MAX_KEYS": MAX_KEYS, "TIDEMARK_API_KEY_CACHE_SECONDS": 0}
        with web_server(tmp_path_factory.mktemp("web"), **settings) as running:
            yield running
        connection.close()


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


@pytest.fixture
def settled(flights) -> None:
    """For pages, whose cursors name the table: the server compares its readers with the catalog once a second only."""
    time.sleep(readers.CHECK_SECONDS)
