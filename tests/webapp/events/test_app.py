"""The events process as a whole: an unavailable database, clients that do not read, a store that lags, its metrics."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import psycopg
import pytest

from tests.webapp.events.conftest import metrics_of
from tests.webapp.events.events_server import events_server
from tests.webapp.events.follower import commit, spec, views_feed
from tests.webapp.redis_views import redis_views
from tests.webapp.web_server import database_url
from tidegauge.state_backends.backends.guard import Attempt
from tidegauge.state_backends.synchronizer.membership import members
from tidegauge.webapp.catalog import readers

WIDE = "x" * 1_900


@pytest.fixture
def feed(transactional_db):
    with views_feed() as feed:
        commit(feed, a=1)
        yield feed


def states(feed, query=""):
    return f"/events/states/{feed.specs[0].name}{query}"


@contextmanager
def no_connections(feed, server):
    """The database refuses new connections, and those of the events process are closed."""
    name = feed.conn.info.dbname
    # ALLOW_CONNECTIONS and not a connection limit, which does not apply to superusers.
    with psycopg.connect(database_url(), dbname="postgres", autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND application_name = %s",
                [name, server.session_name],
            )
            yield
        finally:
            admin.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


class TestAnUnavailableDatabase:
    def test_clients_stay_connected_and_get_every_batch_afterwards(self, feed, listen, server):
        listener = listen(states(feed))
        by_keys = listen(states(feed, '?keys=["a"]'))
        listener.until("ready")
        by_keys.until("snapshot")

        with no_connections(feed, server):
            commit(feed, a=1)
            commit(feed, b=1)
            assert listener.no_more(1.5)
            assert listener.comments >= 1
        commit(feed, a=1)

        assert [listener.next().id for _ in range(3)] == [2, 3, 4]
        assert [by_keys.next().id for _ in range(2)] == [2, 4]

    def test_a_new_client_is_asked_to_retry(self, feed, listen, server):
        listen(states(feed)).until("ready")

        with no_connections(feed, server):
            listener = listen(states(feed))
            problem = listener.problem()

        assert (problem["code"], listener.headers.get("retry-after")) == ("database_unavailable", "1")


@pytest.mark.processes
class TestSlowClients:
    def test_one_that_reads_nothing_is_disconnected_and_delays_no_other(self, transactional_db, listen, tmp_path):
        with (
            views_feed(spec()) as feed,
            events_server(tmp_path, TIDEGAUGE_EVENTS_SLOW_SECONDS=1, TIDEGAUGE_EVENTS_HEARTBEAT_SECONDS=30) as server,
        ):
            commit(feed, a=1)
            slow = listen(states(feed), at=server, buffer_bytes=4_096)
            quick = listen(states(feed), at=server)
            slow.until("ready")
            quick.until("ready")

            for number in range(10):
                commit(feed, **{f"{WIDE}{n}": number for n in range(400)})
                assert quick.next(5.0).id == number + 2

            assert soon(lambda: "tidegauge_sse_dropped_total 1.0" in metrics_of(server))
            assert "tidegauge_sse_clients 1.0" in metrics_of(server)
            ids = remaining_ids(slow)
            resumed = listen(states(feed), at=server, headers={"Last-Event-ID": ids[-1]})
            resumed.until("ready")
            rest = [resumed.next().id for _ in range(11 - ids[-1])]
            assert [*ids, *rest] == list(range(2, 12))


class TestRedis:
    def test_a_batch_is_sent_once_the_store_shows_it(self, transactional_db, listen):
        with readers.own_connection() as conn, redis_views(conn, changelog=True) as pages:
            try:
                pages.commit({"/home": 1})
                listener = listen(f'/events/states/{pages.name}?keys=["/home"]')
                snapshot = listener.next()
                batch = pages.begin()
                pages.write(batch, {"/home": 5})
                pages.ledger.commit(batch)

                assert listener.no_more(0.7)
                pages.backing.under(*Attempt.at(batch)).publish(batch.txid)
                event = listener.next()
            finally:
                conn.execute("DELETE FROM tidegauge.pipeline")

        assert snapshot.data["results"][0]["value"]["views"] == 1
        assert (event.id, event.data["changes"][0]["value"]["views"]) == (2, 6)

    def test_keys_of_a_state_without_a_changelog_are_read_again(self, transactional_db, listen):
        with readers.own_connection() as conn, redis_views(conn) as pages:
            try:
                pages.commit({"/home": 1, "/cart": 1})
                listener = listen(f'/events/states/{pages.name}?keys=["/home","/cart"]')
                listener.until("snapshot")

                pages.commit({"/home": 2})
                [change] = listener.next().data["changes"]
            finally:
                conn.execute("DELETE FROM tidegauge.pipeline")

        assert (change["key"], change["value"]["views"]) == (["/home"], 3)


class TestCommits:
    def test_every_commit_is_sent(self, flights, listen):
        listener = listen("/events/tide")
        assert listener.next().data == {"pipelines": {"flights": 2}}

        flights.commit({("JFK", "C00"): 5})

        event = listener.next()
        assert (event.event, event.id, event.data) == ("tide", None, {"pipeline": "flights", "txid": 3})

    def test_a_driver_that_dies_is_reported_without_a_notification(self, flights, listen):
        listener = listen("/events/tide")
        listener.until("ready")

        flights.die()

        assert listener.next(3.0).data == {"pipeline": "flights", "txid": 2}


@pytest.mark.processes
class TestImports:
    def test_the_process_loads_neither_spark_nor_the_pipelines(self, tmp_path):
        heavy = "{'pyspark', 'tidegauge.pipelines'} & {*sys.modules}"
        script = f"import sys, tidegauge.webapp.asgi; print({heavy})"
        environ = {"PATH": os.environ["PATH"], "TIDEGAUGE_HOME": str(tmp_path), "DATABASE_URL": database_url()}

        done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)

        assert done.stdout == "set()\n"


class TestMonitoring:
    def test_the_process_is_a_member_until_it_ends(self, transactional_db, server):
        with readers.own_connection() as conn:
            joined = soon(lambda: [member.name for member in members(conn) if member.role == "events"])
            with server.stopped():
                after = {member.name for member in members(conn)}

        assert joined
        assert after.isdisjoint(joined)

    def test_clients_and_sent_events_are_counted(self, feed, listen, server):
        def ready():
            found = re.search(r'tidegauge_sse_events_total{event="ready"} (\d+)', metrics_of(server))
            return int(found[1]) if found else 0

        # Those of the test before may not have ended yet.
        assert soon(lambda: "tidegauge_sse_clients 0.0" in metrics_of(server))
        before = ready()

        listen(states(feed)).until("ready")

        assert soon(lambda: "tidegauge_sse_clients 1.0" in metrics_of(server))
        assert ready() == before + 1


def remaining_ids(listener):
    """The ids of the events that a disconnected client had not read yet."""
    ids = []
    while True:
        try:
            ids.append(listener.next().id)
        except (EOFError, TimeoutError, ConnectionError):
            return ids


def soon(condition, within=10.0):
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    return None
