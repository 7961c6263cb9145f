"""Fixtures of most web tests: a pipeline with two committed batches, and a signed-in client."""

from collections.abc import Iterator

import psycopg
import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.webapp.committed_flights import committed_flights
from tests.webapp.flights import SPECS, Flights, flights_pipeline
from tests.webapp.flights_database import fill
from tidegauge.state_backends import BatchLedger
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.schema.swap import Swap
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.celery import app


@pytest.fixture
def connection(db) -> psycopg.Connection:
    readers.clear_cache()
    return readers.connection()


@pytest.fixture
def flights(request: pytest.FixtureRequest, connection: psycopg.Connection) -> Iterator[Flights]:
    """A pipeline with a running driver; it has no committed batch unless the test asks for `filled`."""
    if "filled_database" not in request.fixturenames:
        with flights_pipeline(connection) as pipeline:
            yield pipeline
        return
    database = request.getfixturevalue("filled_database")
    connection.execute(database.move_to_now)
    with flights_pipeline(connection, batches=2) as pipeline:
        pipeline.report("running", pending={"count": 0, "unit": "files", "oldest": None})
        yield pipeline


@pytest.fixture
def filled(request: pytest.FixtureRequest, flights: Flights) -> Flights:
    """Two committed batches: 60 keys of flights_by_carrier, of which (EWR, C00) has the most flights."""
    if "filled_database" not in request.fixturenames:
        fill(flights)
    return flights


@pytest.fixture
def reprocessing(flights: Flights) -> Flights:
    """A pipeline whose states are being reprocessed, with one batch of that committed."""
    flights.commit({("JFK", "AA"): 3})
    conn = flights.conn
    Swap(conn, "flights").begin(SPECS, spout="transactional")
    ledger = BatchLedger(conn, "flights@reprocess")
    ledger.acquire()
    ledger.bind("another")
    batch = ledger.begin(0)
    ledger.commit(batch, rows_in=40)
    conn.execute("UPDATE tidegauge.batch SET started_at = committed_at - interval '2 s' WHERE rows_in = 40")
    driver_status.report(conn, "flights@reprocess", "running", progress={"pending": {"count": 2, "unit": "files"}})
    return flights


@pytest.fixture
def lasting(transactional_db) -> Iterator[Flights]:
    """A filled pipeline that every connection sees, and an empty task queue."""
    app.control.purge()
    with committed_flights() as pipeline:
        yield pipeline
    app.control.purge()


@pytest.fixture
def reader(django_user_model) -> Client:
    """A client with the session of a user without permissions."""
    client = Client()
    client.force_login(django_user_model.objects.create_user("reader"))
    return client


@pytest.fixture
def may_view_dead_letters(reader, django_user_model) -> None:
    """The user of `reader` may view the raw input of dead letters."""
    user = django_user_model.objects.get(username="reader")
    user.user_permissions.add(Permission.objects.get(codename="view_dead_letters"))
