"""For tests without a transaction: committed flights, and an unavailable database."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from tests.webapp.flights import Flights, flights_pipeline
from tests.webapp.flights_database import fill
from tidegauge.webapp.catalog import readers


@contextmanager
def committed_flights() -> Iterator[Flights]:
    """A pipeline with two batches on a connection of its own; Baseline deletes it after the test."""
    readers.clear_cache()
    with readers.own_connection() as conn, flights_pipeline(conn) as pipeline:
        fill(pipeline)
        yield pipeline


@pytest.fixture
def lasting(transactional_db) -> Iterator[Flights]:
    """A filled pipeline that every connection sees."""
    with committed_flights() as pipeline:
        yield pipeline


@contextmanager
def no_database() -> Iterator[None]:
    """Django's connection has an address without a server."""
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, "PORT", "1")
        yield
    connection.close()
