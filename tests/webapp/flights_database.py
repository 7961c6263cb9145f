"""A second test database, in which the pipeline of flights has committed two batches.

Filling it takes 147 ms of CPU, and some 1,700 tests need to see it. They share this database; each has a transaction
of its own, which is rolled back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from tests.harness.reset import COPY
from tests.webapp.flights import Flights, flights_pipeline

# Tests expect batches that are fresh, whenever the database was filled. Other tables stay as they are: a row of the
# catalog or of an epoch that is written again counts as another one, and updated rows of states would bloat them.
MOVED = ("batch", "driver", "pipeline")
MOVE = """
SELECT format('UPDATE tidegauge.%%I SET %%s', table_name,
    string_agg(format('%%1$I = %%1$I + (now() - (SELECT at FROM baseline.filled))', column_name), ', '))
FROM information_schema.columns
WHERE data_type = 'timestamp with time zone' AND table_schema = 'tidegauge' AND table_name = ANY(%s)
GROUP BY table_name
"""


@dataclass(frozen=True)
class FlightsDatabase:
    """The connection to it, and the statements that move the times of its batches to now."""

    connection: BaseDatabaseWrapper
    move_to_now: str


@pytest.fixture(scope="session")
def flights_database(django_db_setup: None, django_db_blocker) -> Iterator[FlightsDatabase]:
    """The copy of the test database, in which the pipeline of tests/webapp/flights.py has committed two batches."""
    database = connection.copy()
    database.settings_dict["NAME"] += COPY
    with django_db_blocker.unblock():
        database.ensure_connection()
        conn = database.connection
        with flights_pipeline(conn) as flights:
            fill(flights)
        conn.execute("CREATE TABLE baseline.filled AS SELECT clock_timestamp() AS at")
        statements = [row[0] for row in conn.execute(MOVE, [list(MOVED)]).fetchall()]
        yield FlightsDatabase(database, "; ".join(statements))
        database.close()


@pytest.fixture
def filled_database(flights_database: FlightsDatabase) -> Iterator[FlightsDatabase]:
    """During the test Django's connection is the one to `flights_database`."""
    usual = connections["default"]
    connections["default"] = flights_database.connection
    yield flights_database
    connections["default"] = usual


def fill(flights: Flights) -> None:
    """Commit two batches: 60 keys of flights_by_carrier, of which (EWR, C00) has the most flights."""
    flights.commit({(origin, f"C{n:02}"): 100 - n for n in range(30) for origin in ("EWR", "JFK")})
    flights.commit({("EWR", "C00"): 1_000})
    flights.report("running", pending={"count": 0, "unit": "files", "oldest": None})
