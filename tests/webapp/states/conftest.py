from collections.abc import Iterator

import pytest

from tests.webapp.committed_flights import committed_flights
from tests.webapp.fixtures import connection, filled, flights, reader, reprocessing
from tests.webapp.flights import Flights
from webapp.celery import app

__all__ = ["connection", "filled", "flights", "reader", "reprocessing"]


@pytest.fixture
def lasting(transactional_db) -> Iterator[Flights]:
    """A filled pipeline that every connection sees, and an empty task queue."""
    app.control.purge()
    with committed_flights() as pipeline:
        yield pipeline
    app.control.purge()
