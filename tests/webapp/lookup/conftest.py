from collections.abc import Iterator

import pytest

from tests.webapp.fixtures import connection, filled, flights, reader
from tests.webapp.flights import Flights
from tests.webapp.lasting import lasting_flights
from tests.webapp.lookup.openapi import CheckedClient
from webapp.api_keys import verification
from webapp.api_keys.services import create_api_key

__all__ = ["connection", "filled", "flights", "reader"]


@pytest.fixture
def api(db) -> CheckedClient:
    """A client whose key may read."""
    verification.forget()
    return CheckedClient(create_api_key("reader", ["read"])[1])


@pytest.fixture
def keeper(db) -> CheckedClient:
    """A client whose key may read and maintain."""
    verification.forget()
    return CheckedClient(create_api_key("keeper", ["read", "maintain"])[1])


@pytest.fixture
def lasting(transactional_db) -> Iterator[Flights]:
    """A filled pipeline that every connection sees."""
    with lasting_flights() as pipeline:
        yield pipeline
