"""Tasks in a real worker process, requested through Redis."""

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from tests.harness.waiting import eventually
from tests.webapp.maintenance.test_services import CARRIERS
from tidegauge.state_backends.synchronizer.membership import members
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.maintenance import runner
from tidegauge.webapp.maintenance.services import request_maintenance
from tidegauge.webapp.serving import process_commands

pytestmark = pytest.mark.processes

wait_until = partial(eventually, seconds=60)

APPENDED_AT = "SELECT appended_at FROM tidegauge.synchronizer"


@pytest.fixture
def worker(lasting) -> Iterator[subprocess.Popen]:
    command = [*process_commands.worker(), "--without-mingle"]
    environ = {**os.environ, "DATABASE_URL": _test_database()}
    process = subprocess.Popen(command, env=environ, start_new_session=True, stderr=subprocess.DEVNULL)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_worker_executes_a_request(worker):
    run = request_maintenance(kind="compaction", state=CARRIERS, requested_by="ann")

    wait_until(lambda: reloaded(run).is_finished)

    assert (run.status, run.error) == ("done", "")


def test_a_worker_is_listed_until_it_ends(worker, lasting):
    wait_until(lambda: members(lasting.conn))
    [member] = members(lasting.conn)
    joined_at = lasting.conn.execute(APPENDED_AT).fetchone()
    wait_until(lambda: lasting.conn.execute(APPENDED_AT).fetchone() != joined_at)  # its heartbeat

    worker.terminate()
    wait_until(lambda: not members(lasting.conn))

    assert (member.role, member.pid, member.healthy) == ("worker", worker.pid, True)


def test_the_run_of_a_killed_worker_is_marked_as_failed(worker, lasting):
    with lasting.conn.transaction():
        # The run cannot get past its first page while a batch holds the ledger's row.
        lasting.conn.execute("SELECT FROM tidegauge.pipeline FOR UPDATE")
        run = request_maintenance(kind="expiry", state=CARRIERS, requested_by="ann")
        wait_until(lambda: reloaded(run).before)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        wait_until(lambda: _waiting_for_a_lock(lasting.conn) == 0)
    # Its session stops waiting a moment before it ends and gives up the locks of the state.
    wait_until(lambda: not _is_worked_on(lasting.conn))

    again = request_maintenance(kind="expiry", state=CARRIERS, requested_by="bob")

    assert (reloaded(run).status, run.error) == ("failed", runner.WORKER_DIED)
    assert again.status == "queued"


def reloaded(run: MaintenanceRun) -> MaintenanceRun:
    run.refresh_from_db()
    return run


def _test_database() -> str:
    held = connection.get_connection_params()
    return make_conninfo(**{name: held[name] for name in ("host", "port", "user", "password", "dbname")})


def _waiting_for_a_lock(conn) -> int:
    """End the sessions that still wait for a lock, as the server does once it notices that their client is gone."""
    return conn.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()[0]


def _is_worked_on(conn) -> bool:
    return conn.execute("SELECT tidegauge.is_worked_on(%s, 'expiry')", [CARRIERS]).fetchone()[0]
