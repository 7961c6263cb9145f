"""What a test cannot do in a transaction: flights that are committed for good, and a database that is gone."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from state_backends.schema import tables
from state_backends.table import StateTable
from tests.webapp.flights import SPECS, Flights, flights_pipeline
from webapp.states import specs, stores


@contextmanager
def lasting_flights() -> Iterator[Flights]:
    """A filled pipeline on a connection of its own; everything goes at the end."""
    specs.forget()
    with stores.own_connection() as conn, flights_pipeline(conn) as pipeline:
        try:
            pipeline.commit({(origin, f"C{n:02}"): 100 - n for n in range(30) for origin in ("EWR", "JFK")})
            pipeline.commit({("EWR", "C00"): 1_000})
            yield pipeline
        finally:
            for spec in SPECS:
                tables.drop(conn, StateTable(spec))
            conn.execute("DELETE FROM tidemark.pipeline")
            conn.execute("DELETE FROM tidemark.synchronizer")


@contextmanager
def no_database() -> Iterator[None]:
    """Nothing listens at the database's address for a while."""
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, "PORT", "1")
        yield
    connection.close()
