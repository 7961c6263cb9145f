"""A task's log lines have the id of the request that started it."""

import logging
import time

import pytest
from celery.contrib.testing.worker import start_worker
from celery.signals import before_task_publish, task_postrun, task_prerun
from structlog.contextvars import bound_contextvars, get_contextvars

from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.celery import REQUEST_ID_HEADER, app
from tidegauge.webapp.maintenance import services


@pytest.fixture
def recorder():
    """A task that records what is bound while it runs, and its records."""
    found = []

    @app.task(name="tests.record", bind=True)
    def record(self):
        found.append(get_contextvars())

    yield record, found
    app.tasks.unregister("tests.record")


def test_the_request_id_is_sent_in_the_headers():
    headers = {}

    with bound_contextvars(request_id="r-7"):
        before_task_publish.send(sender="x", headers=headers)

    assert headers == {REQUEST_ID_HEADER: "r-7"}


def test_a_scheduled_task_has_no_request_id():
    headers = {}

    before_task_publish.send(sender="x", headers=headers)

    assert headers == {}


def test_the_request_id_is_bound_only_while_the_task_runs(recorder):
    task, found = recorder
    task.push_request(id="t-1", **{REQUEST_ID_HEADER: "r-7"})
    try:
        task_prerun.send(sender=task, task_id="t-1", task=task)
        task.run()
        task_postrun.send(sender=task, task_id="t-1", task=task)
    finally:
        task.pop_request()

    assert found == [{"task": "tests.record", "task_id": "t-1", "request_id": "r-7"}]
    assert get_contextvars() == {}


def test_a_task_without_a_request_does_not_inherit_another_ones_id(recorder):
    task, found = recorder
    with bound_contextvars(request_id="r-6"):
        task.apply()

    assert [set(bound) for bound in found] == [{"task", "task_id"}]


def test_the_lines_of_a_maintenance_run_name_run_and_state(transactional_db, lines):
    from tests.webapp.committed_flights import committed_flights

    with committed_flights():
        run = services.maintain_now(kind="compaction", state="totals", requested_by="ada")

        logged = [line for line in lines() if line["logger"] == "tidegauge.webapp.maintenance.runner"]

    assert run.status == MaintenanceRun.Status.DONE
    assert [(line["event"], line["run"], line["state"], line["kind"]) for line in logged] == [
        ("maintenance begins", run.id, "totals", "compaction"),
        ("maintenance is over", run.id, "totals", "compaction"),
    ]
    assert (logged[0]["requested_by"], logged[1]["status"]) == ("ada", "done")


def test_celery_does_not_configure_logging():
    root = logging.getLogger()
    before = list(root.handlers), root.level

    app.log.setup(loglevel="DEBUG", redirect_stdouts=True)

    assert (list(root.handlers), root.level) == before


def test_a_worker_binds_the_id_of_the_request(recorder, transactional_db):
    task, found = recorder
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        with bound_contextvars(request_id="r-8"):
            task.delay()
        deadline = time.monotonic() + 60
        while not found and time.monotonic() < deadline:
            time.sleep(0.05)

    assert [bound["request_id"] for bound in found] == ["r-8"]
