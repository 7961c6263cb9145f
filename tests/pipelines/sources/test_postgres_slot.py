"""The replication slot behind a table as a source."""

import threading
import time

import psycopg

from pipelines.sources.postgres_slot import Slot


def test_a_slot_that_is_still_being_made_is_not_there_yet(conn, database_url):
    def make():
        with psycopg.connect(database_url, autocommit=True) as maker:
            maker.execute("SELECT pg_create_logical_replication_slot('half_made', 'pgoutput')")

    thread = threading.Thread(target=make)
    with psycopg.connect(database_url) as busy:
        busy.execute("SELECT pg_current_xact_id()")
        thread.start()
        deadline = time.monotonic() + 30
        while not conn.execute("SELECT FROM pg_replication_slots").rowcount and time.monotonic() < deadline:
            time.sleep(0.01)
        state = Slot(conn, "half_made", "any").state()
    thread.join(timeout=30)

    assert state is None
    assert Slot(conn, "half_made", "any").state() is not None
    conn.execute("SELECT pg_drop_replication_slot('half_made')")
