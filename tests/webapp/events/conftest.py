"""A pipeline whose commits persist, an events process, and clients that are closed after the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.db import connection

from tests.webapp.committed_flights import committed_flights
from tests.webapp.events.events_server import Listener, events_server
from tests.webapp.flights import Flights
from tests.webapp.web_server import Server
from webapp.accounts.services import create_api_key
from webapp.events.deltas import EventId
from webapp.states.models import Pipeline

HEARTBEAT_SECONDS = 0.5


@pytest.fixture
def flights(transactional_db) -> Iterator[Flights]:
    """Two batches are committed: 60 keys of flights_by_carrier."""
    with committed_flights() as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def server(django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[Server]:
    """One events process for all tests of a module, while their data comes and goes."""
    folder: Path = tmp_path_factory.mktemp("events")
    with django_db_blocker.unblock():
        quick = {"TIDEMARK_EVENTS_HEARTBEAT_SECONDS": HEARTBEAT_SECONDS, "TIDEMARK_API_KEY_CACHE_SECONDS": 0}
        with events_server(folder, **quick) as running:
            yield running
        connection.close()


@pytest.fixture
def api_key(transactional_db) -> str:
    return create_api_key("listener", ["read"])[1]


@pytest.fixture
def listen(server: Server, api_key: str) -> Iterator[Callable[..., Listener]]:
    """Opens a stream: a path, headers besides the API key's, another server if one is given.

    A number as Last-Event-ID is the txid of an event of the pipelines' epoch.
    """
    with ExitStack() as stack:

        def listen(path: str, *, at: Server = server, key: str | None = api_key, **options) -> Listener:
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            headers |= {name: _header(value) for name, value in options.pop("headers", {}).items()}
            listener = Listener(at, path, headers, **options)
            stack.callback(listener.close)
            return listener

        yield listen


def _header(value: str | int) -> str:
    return str(EventId(value, epoch())) if isinstance(value, int) else value


def epoch() -> str:
    """Return the epoch of all pipelines."""
    return Pipeline.objects.values_list("epoch", flat=True).distinct().get()
