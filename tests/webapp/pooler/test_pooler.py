"""The web application behind a real PgBouncer in transaction mode: what works there, and what is refused by name."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from django.db import connection
from psycopg.conninfo import conninfo_to_dict

from tests.harness.waiting import eventually
from tests.pgbouncer import BEHIND_PGBOUNCER, pgbouncer
from tests.webapp.committed_flights import committed_flights
from tests.webapp.events.events_server import events_server
from tests.webapp.flights import Flights
from tests.webapp.web_server import database_url, web_server
from tidegauge.state_backends.synchronizer.membership import members
from tidegauge.webapp.accounts.services import create_api_key
from tidegauge.webapp.catalog import readers, replicas
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.replicas import Replicas
from tidegauge.webapp.commands.management.child_process import Child
from tidegauge.webapp.core import pooler
from tidegauge.webapp.maintenance import services
from tidegauge.webapp.serving import process_commands

pytestmark = BEHIND_PGBOUNCER

STATE = "/api/v1/states/flights_by_carrier"


@pytest.fixture
def flights(transactional_db) -> Iterator[Flights]:
    """A filled pipeline that every connection sees."""
    with committed_flights() as pipeline:
        yield pipeline


@pytest.fixture
def pooled(flights, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a PgBouncer in front of the test's database; gives the address that leads through it."""
    with ExitStack() as running:
        # The servers of the tests do without, and a session of the pooler is not changed.
        running.enter_context(role_settings(synchronous_commit="on"))
        yield lambda *lines, **more: running.enter_context(pgbouncer(database_url(), tmp_path, *lines, **more))


@contextmanager
def role_settings(**settings: str) -> Iterator[None]:
    """Settings of the role; every session that is opened gets them."""
    with psycopg.connect(database_url(), autocommit=True) as conn:
        for name, value in settings.items():
            conn.execute(f"ALTER ROLE CURRENT_USER SET {name} = '{value}'")
        try:
            yield
        finally:
            for name in settings:
                conn.execute(f"ALTER ROLE CURRENT_USER RESET {name}")


@contextmanager
def django_on(address: str) -> Iterator[None]:
    """Django's connections lead to another host and port."""
    parts = conninfo_to_dict(address)
    connection.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", parts["host"])
        patch.setitem(connection.settings_dict, "PORT", parts["port"])
        yield
        connection.close()


def settings_of_all_sessions(address: str, name: str) -> set[str]:
    """Return the values of a setting in the sessions of the pool, both of them."""
    with ExitStack() as open_at_once:
        shown = []
        for _ in range(2):
            conn = open_at_once.enter_context(psycopg.connect(address, autocommit=True))
            open_at_once.enter_context(conn.transaction())
            shown.append(conn.execute("SELECT current_setting(%s)", [name]).fetchone())
    return {row[0] for row in shown if row}


def test_lookups_pages_and_exports_are_answered(flights, pooled, tmp_path):
    address, key = pooled(), create_api_key("reader", ["read"])[1]
    limits = dict.fromkeys(
        ["TIDEGAUGE_EXPORTS", "TIDEGAUGE_EXPORTS_EACH", "TIDEGAUGE_SEARCHES", "TIDEGAUGE_SEARCHES_EACH"], 20
    )

    with (
        web_server(tmp_path, DATABASE_URL=address, DATABASE_DIRECT_URL=database_url(), **limits) as server,
        httpx.Client(
            base_url=f"http://127.0.0.1:{server.port}{STATE}", headers={"Authorization": f"Bearer {key}"}, timeout=60
        ) as client,
    ):

        def ask(_: int) -> tuple[int, ...]:
            found = client.post("/lookup", json={"keys": [["EWR", "C00"]], "measures": ["flights"]}).json()
            page = client.get("/entries", params={"limit": 1, "order_by": "-flights"}).json()
            lines = client.get("/export?format=csv").text.splitlines()
            versions = client.get("/history", params={"key": '["EWR","C00"]'}).json()["versions"]
            flights = [each["value"]["flights"] for each in (*found["results"], *page["entries"], versions[0])]
            return (*flights, len(lines))

        with ThreadPoolExecutor(8) as threads:
            answers = set(threads.map(ask, range(64)))

    assert answers == {(1_100, 1_100, 1_100, 61)}
    for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
        assert settings_of_all_sessions(address, name) == {"0"}


def test_an_export_is_refused_without_the_address_of_the_server_and_the_log_says_so(flights, pooled, tmp_path):
    key = create_api_key("reader", ["read"])[1]

    with web_server(tmp_path, DATABASE_URL=pooled()) as server:
        address = f"http://127.0.0.1:{server.port}{STATE}/export?format=csv"
        refused = httpx.get(address, headers={"Authorization": f"Bearer {key}"}, timeout=60)

    assert (refused.status_code, refused.json()["code"]) == (501, "exports_unavailable")
    assert "an export needs a session of its own: set DATABASE_DIRECT_URL" in refused.json()["detail"]
    assert "an export needs a session of its own: set DATABASE_DIRECT_URL" in server.process.log.read_text()


def test_the_admin_and_the_pages_are_answered(pooled, client, django_user_model):
    client.force_login(django_user_model.objects.create_superuser("root"))

    with django_on(pooled()):
        pages = [client.get(path) for path in ("/", "/states/flights_by_carrier/", "/admin/", "/maintenance")]

    assert [page.status_code for page in pages] == [200] * 4


def test_nothing_is_set_in_a_session_of_the_pooler_and_nothing_is_prepared(pooled):
    with django_on(pooled()):
        connection.ensure_connection()

        assert pooler.is_pooled(connection.connection)
        assert connection.connection.prepare_threshold is None


def test_the_server_itself_is_not_taken_for_a_pooler(flights):
    connection.ensure_connection()

    assert not pooler.is_pooled(connection.connection)


def test_other_settings_of_the_poolers_sessions_are_refused_by_name(pooled):
    with role_settings(IntervalStyle="iso_8601", synchronous_commit="off"), django_on(pooled()):
        for _ in range(2):  # a connection that was refused is not used the next time
            with pytest.raises(pooler.PoolerError) as found:
                connection.cursor()

    assert str(found.value) == (
        "the sessions of the connection pooler have IntervalStyle = 'iso_8601', not 'postgres'; synchronous_commit = "
        "'off', not 'on': set the needed values with ALTER ROLE .. SET, or in the connect_query of PgBouncer"
    )


def test_the_check_of_the_replicas_says_once_what_the_poolers_sessions_lack(pooled, caplog):
    found = Replicas([database_url()], 60.0)
    with role_settings(IntervalStyle="iso_8601"):
        for _ in range(2):
            with django_on(pooled()):
                found.check()
        with role_settings(synchronous_commit="off"), django_on(pooled()):
            found.check()
    found.close()

    said = [record.getMessage() for record in caplog.records if record.name == replicas.__name__]
    assert len(said) == 2
    assert "compared with the primary: the sessions of the connection pooler have IntervalStyle = 'iso_8601'" in said[0]
    assert "synchronous_commit = 'off', not 'on'" in said[1]


def test_work_that_needs_a_session_is_refused_without_the_address_of_the_server(pooled):
    with (
        django_on(pooled()),
        pytest.raises(pooler.PoolerError, match="maintenance needs a session of its own: set DATABASE_DIRECT_URL"),
    ):
        readers.own_connection("maintenance")


def worker(folder: Path, **settings: str) -> Child:
    command = [*process_commands.worker(), "--without-mingle"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LOG_FORMAT": "text", **settings}.items():
            patch.setenv(name, value)
        return Child("worker", command, folder / "worker.log")


def test_a_worker_is_refused_at_its_start_without_the_address_of_the_server(pooled, tmp_path):
    refused = worker(tmp_path, DATABASE_URL=pooled())
    try:
        eventually(lambda: refused.exit_code() is not None, 60)
    finally:
        refused.stop()

    assert refused.exit_code() not in (0, None)
    assert "maintenance needs a session of its own: set DATABASE_DIRECT_URL" in refused.log.read_text()


def test_a_worker_maintains_states_over_the_servers_own_sessions(pooled, tmp_path):
    address = pooled()
    running = worker(tmp_path, DATABASE_URL=address, DATABASE_DIRECT_URL=database_url())
    try:
        run = services.request_maintenance(kind="compaction", state="flights_by_carrier", requested_by="a test")
        eventually(lambda: MaintenanceRun.objects.get(pk=run.pk).is_finished, 90)
    finally:
        running.stop()

    assert MaintenanceRun.objects.get(pk=run.pk).status == "done"
    assert settings_of_all_sessions(address, "lock_timeout") == {"0"}


def test_the_events_process_listens_over_a_session_of_its_own(pooled, tmp_path):
    listening = "SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN %'"
    server = events_server(tmp_path, DATABASE_URL=pooled(), DATABASE_DIRECT_URL=database_url())

    with server, psycopg.connect(database_url(), autocommit=True) as conn:
        eventually(lambda: conn.execute(listening).fetchall())
        eventually(lambda: [one for one in members(conn) if one.role == "events"])


def test_the_events_process_is_refused_without_it(pooled, tmp_path):
    with pytest.raises(RuntimeError), events_server(tmp_path, DATABASE_URL=pooled()):
        pass

    log = next(tmp_path.glob("events-*.log")).read_text()
    assert "the events process, which listens for commits, needs a session of its own: set DATABASE_DIRECT_URL" in log
