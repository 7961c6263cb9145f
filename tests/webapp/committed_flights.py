"""For tests without a transaction: committed flights, and an unavailable database."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from state_backends.table import StateTable
from tests.webapp.dropping import drop_tables
from tests.webapp.flights import SPECS, Flights, flights_pipeline
from webapp.states import readers


@contextmanager
def committed_flights() -> Iterator[Flights]:
    """A pipeline with two batches on a connection of its own; everything is deleted at the end."""
    readers.clear_cache()
    with readers.own_connection() as conn, flights_pipeline(conn) as pipeline:
        try:
            pipeline.commit({(origin, f"C{n:02}"): 100 - n for n in range(30) for origin in ("EWR", "JFK")})
            pipeline.commit({("EWR", "C00"): 1_000})
            yield pipeline
        finally:
            for spec in SPECS:
                drop_tables(conn, StateTable(spec))
            conn.execute("DELETE FROM tidemark.pipeline")
            conn.execute("DELETE FROM tidemark.former")
            conn.execute("DELETE FROM tidemark.synchronizer")


@contextmanager
def no_database() -> Iterator[None]:
    """Django's connection has an address without a server."""
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, "PORT", "1")
        yield
    connection.close()
