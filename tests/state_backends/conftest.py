"""One database with Tidegauge's tables for all tests here; states and pipelines under fresh names, once per test."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count

import psycopg
import pytest

from tests.contracts.backends import APART, BACKENDS, STORES, NewBacking
from tests.state_backends.connections import Connections
from tests.state_backends.feed import Feed
from tidegauge.pipelines.embedded.temporary import temporary_database
from tidegauge.state_backends import Catalog, StateSpec

_numbers = count(1)


@pytest.fixture(scope="session")
def shared_url() -> Iterator[str]:
    """The URL of a database with Tidegauge's own tables, which every test shares that uses fresh names alone."""
    with temporary_database(os.environ["DATABASE_URL"]) as url:
        install(url)
        yield url


@pytest.fixture(scope="module")
def own_url(database_url: str) -> str:
    """The URL of a database with Tidegauge's own tables that this test module has to itself."""
    install(database_url)
    return database_url


@pytest.fixture(scope="module")
def installed_url(shared_url: str) -> str:
    """The URL of the database that the tests use. A module that changes more than its own rows gives `own_url` here."""
    return shared_url


def install(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        Catalog(conn).install()


@pytest.fixture(scope="session")
def connections() -> Iterator[Connections]:
    connections = Connections()
    yield connections
    connections.close()


@pytest.fixture
def conn(connections: Connections, installed_url: str) -> Iterator[psycopg.Connection]:
    with connections.lent(installed_url) as connection:
        yield connection


@pytest.fixture
def connect(connections: Connections, installed_url: str) -> Iterator[Callable[[], psycopg.Connection]]:
    """Opens more connections in autocommit mode, until the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(connections.lent(installed_url))


@pytest.fixture
def fresh() -> Callable[[StateSpec], StateSpec]:
    """Gives a spec a name that no other test has used."""
    return lambda spec: replace(spec, name=f"{spec.name}_{next(_numbers)}")


@pytest.fixture
def new_feed(conn: psycopg.Connection) -> Callable[..., Feed]:
    """Opens a feed of a new pipeline over the given states."""

    def new_feed(*specs: StateSpec, spout: str = "opaque") -> Feed:
        return Feed(conn, specs, pipeline=f"pipeline_{next(_numbers)}", spout=spout)

    return new_feed


@pytest.fixture(params=[*STORES, "cached_memory"])
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each store in turn, and of one with a cache."""
    return request.param


@pytest.fixture
def new_backing(backend: str, request: pytest.FixtureRequest, fresh) -> NewBacking:
    """Makes an empty backing map for a spec, on every backend in turn."""
    # Connecting takes longer than most tests in memory.
    conn = None if backend in APART else request.getfixturevalue("conn")
    return lambda spec: BACKENDS[backend](conn)(fresh(spec))
