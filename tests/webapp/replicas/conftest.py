"""A primary with streaming standbys, as servers of their own, and the web application on the primary."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import connection

from tests.harness.waiting import eventually
from tests.soak.postgres_pair import NAME, PASSWORD, Server
from tests.webapp.api.checked_client import CheckedClient
from tests.webapp.flights import Flights
from tidegauge.webapp.accounts import authentication
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import readers, replicas
from tidegauge.webapp.catalog.replicas import Replicas
from tidegauge.webapp.console import system_snapshot

MOST_LAG_SECONDS = 1_000.0


class Cluster:
    """primary: with the tables of Tidegauge. standbys: both follow it. flights: commits batches on the primary."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._servers = folder, 0
        self.primary = self.new()
        self.primary.create()
        self.primary.start()
        self.standbys: list[Server] = []
        self.flights: Flights

    def new(self) -> Server:
        self._servers += 1
        return Server(self._folder / f"postgres-{self._servers}")

    def follow(self) -> Server:
        standby = self.new()
        standby.copy(self.primary, "--write-recovery-conf", "--wal-method=stream")
        standby.start()
        self.standbys.append(standby)
        return standby

    def caught_up(self, standby: Server) -> None:
        [(written,)] = self.primary.query("SELECT pg_current_wal_lsn()")
        eventually(lambda: standby.query("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written)[0][0])


@contextmanager
def django_on(server: Server) -> Iterator[None]:
    """Django's connections are to a server of the test."""
    connection.close()
    place = {"HOST": "127.0.0.1", "PORT": str(server.port), "NAME": NAME, "USER": NAME, "PASSWORD": PASSWORD}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.items():
            patch.setitem(connection.settings_dict, name, value)
        yield
        connection.close()
    readers.clear_cache()
    authentication.clear_cache()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, django_db_blocker: Any) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        with django_db_blocker.unblock(), django_on(made.primary):
            call_command("migrate", verbosity=0)
            with readers.own_connection() as conn:
                made.flights = Flights(conn)
                made.flights.commit({("EWR", f"C{n:02}"): 100 - n for n in range(30)})
                for _ in range(2):
                    made.caught_up(made.follow())
                yield made
    finally:
        for server in (*made.standbys, made.primary):
            server.remove()


class Reading(NamedTuple):
    """replicas: what the requests of the test use; it is checked when the test says so."""

    replicas: Replicas

    def reasons(self) -> list[str]:
        self.replicas.check()
        return [replica.standing.reason for replica in self.replicas.all]


def replays(standby: Server) -> bool:
    return standby.query("SELECT pg_get_wal_replay_pause_state()") == [("not paused",)]


@pytest.fixture
def reading(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Reading]]:
    """Sets up reading from servers, without the thread that checks them.

    A replica has to replay what the primary had at the first check, which is waited for unless its replay is paused.
    """
    made: list[Replicas] = []

    def arrange(*servers: Server | str, most_lag_seconds: float = MOST_LAG_SECONDS) -> Reading:
        addresses = [server if isinstance(server, str) else server.url for server in servers]
        found = Replicas(addresses, most_lag_seconds)
        monkeypatch.setattr(found, "_start", lambda: None)
        monkeypatch.setattr(replicas, "configured", found)
        made.append(found)
        if servers:
            found.check()

        def none_is_late() -> bool:
            late = [
                server
                for server, replica in zip(servers, found.all, strict=True)
                if "first check" in replica.standing.reason and isinstance(server, Server) and replays(server)
            ]
            if late:
                found.check()
            return not late

        eventually(none_is_late)
        return Reading(found)

    readers.clear_cache()
    system_snapshot.clear_cache()
    yield arrange
    for each in made:
        each.close()


@pytest.fixture
def api(cluster: Cluster) -> CheckedClient:
    """A client whose key may read; the key is in the primary."""
    authentication.clear_cache()
    return CheckedClient(create_api_key(f"reader {uuid4()}", ["read"])[1])
