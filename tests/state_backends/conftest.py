"""A database with Tidemark's tables, once per module; states and pipelines under fresh names, once per test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count

import psycopg
import pytest

from state_backends import Catalog, StateSpec
from tests.contracts.backends import BACKENDS, NewBacking
from tests.state_backends.feed import Feed

_numbers = count(1)

# Fail a test that waits longer for a lock: it would never end.
PATIENCE = "-c lock_timeout=10s"


@pytest.fixture(scope="module")
def installed_url(database_url: str) -> str:
    """The URL of the module's database, with Tidemark's own tables in it."""
    with psycopg.connect(database_url, autocommit=True) as conn:
        Catalog(conn).install()
    return database_url


@pytest.fixture
def conn(installed_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(installed_url, autocommit=True, options=PATIENCE) as connection:
        yield connection


@pytest.fixture
def connect(installed_url: str) -> Iterator[Callable[[], psycopg.Connection]]:
    """Opens more connections in autocommit mode; they end with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(psycopg.connect(installed_url, autocommit=True, options=PATIENCE))


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


@pytest.fixture(params=BACKENDS)
def new_backing(request: pytest.FixtureRequest, conn: psycopg.Connection, fresh) -> NewBacking:
    """Makes an empty backing map for a spec, on every backend in turn."""
    make = BACKENDS[request.param](conn)
    return lambda spec: make(fresh(spec))
