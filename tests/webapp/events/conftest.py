"""A pipeline whose commits persist, an events process, and clients that are closed after the test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness.waiting import eventually
from tests.webapp.committed_flights import committed_flights
from tests.webapp.events.events_server import Listener, events_server
from tests.webapp.flights import Flights
from tests.webapp.processes import HEARTBEAT_SECONDS
from tests.webapp.web_server import Server, all_of, asked
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog.models import Pipeline
from tidegauge.webapp.events.deltas import EventId


@pytest.fixture
def flights(transactional_db) -> Iterator[Flights]:
    """Two batches are committed: 60 keys of flights_by_carrier."""
    with committed_flights() as pipeline:
        yield pipeline


@pytest.fixture
def server(events_process: Server) -> Server:
    return events_process


@pytest.fixture(scope="module")
def narrow_process(django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[Server]:
    """An events process with low limits, which a few clients, batches and keys reach."""
    limits = {
        "TIDEGAUGE_EVENTS_MAX_CHANGES": 2, "TIDEGAUGE_EVENTS_MAX_BATCHES": 3, "TIDEGAUGE_EVENTS_MAX_CLIENTS": 3,
        "TIDEGAUGE_EVENTS_MAX_CLIENTS_EACH": 2, "TIDEGAUGE_WRONG_KEY_RATE_PER_MINUTE": 2,
        "TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS": HEARTBEAT_SECONDS, "TIDEGAUGE_API_KEY_CACHE_SECONDS": 0,
    }  # fmt: skip
    with django_db_blocker.unblock(), events_server(tmp_path_factory.mktemp("narrow"), **limits) as running:
        yield running


@pytest.fixture
def narrow(narrow_process: Server) -> Server:
    """The same, after the clients of the test before."""
    eventually(lambda: "tidegauge_sse_clients 0.0" in metrics_of(narrow_process))
    return narrow_process


def metrics_of(server: Server) -> str:
    with asked(server.port, "/metrics") as client:
        return all_of(client).decode()


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
