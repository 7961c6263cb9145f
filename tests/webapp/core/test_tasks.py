"""The lines of a task carry the request that asked for it."""

import logging
import time

import pytest
from celery.contrib.testing.worker import start_worker
from celery.signals import before_task_publish, task_postrun, task_prerun
from structlog.contextvars import bound_contextvars, get_contextvars

from webapp.celery import app
from webapp.core import task_logging
from webapp.states import services
from webapp.states.models import MaintenanceRun


@pytest.fixture
def seen():
    """A task that notes what is bound while it runs."""
    found = []

    @app.task(name="tests.look", bind=True)
    def look(self):
        found.append(get_contextvars())

    yield look, found
    app.tasks.unregister("tests.look")


def test_the_id_of_the_request_travels_in_the_headers():
    headers = {}

    with bound_contextvars(request_id="r-7"):
        before_task_publish.send(sender="x", headers=headers)

    assert headers == {task_logging.HEADER: "r-7"}


def test_a_scheduled_task_has_none():
    headers = {}

    before_task_publish.send(sender="x", headers=headers)

    assert headers == {}


def test_it_is_bound_while_the_task_runs_and_not_afterwards(seen):
    task, found = seen
    task.push_request(id="t-1", **{task_logging.HEADER: "r-7"})
    try:
        task_prerun.send(sender=task, task_id="t-1", task=task)
        task.run()
        task_postrun.send(sender=task, task_id="t-1", task=task)
    finally:
        task.pop_request()

    assert found == [{"task": "tests.look", "task_id": "t-1", "request_id": "r-7"}]
    assert get_contextvars() == {}


def test_a_task_of_nobody_does_not_inherit_the_last_ones(seen):
    task, found = seen
    with bound_contextvars(request_id="of another"):
        task.apply()

    assert [set(bound) for bound in found] == [{"task", "task_id"}]


def test_a_runs_lines_say_which_run_of_which_state(transactional_db, lines):
    from tests.webapp.committed_flights import committed_flights

    with committed_flights():
        run = services.maintain_now(kind="compaction", state="totals", requested_by="somebody")

        told = [line for line in lines() if line["logger"] == "webapp.states.maintenance"]

    assert run.status == MaintenanceRun.Status.DONE
    assert [(line["event"], line["run"], line["state"], line["kind"]) for line in told] == [
        ("maintenance begins", run.id, "totals", "compaction"),
        ("maintenance is over", run.id, "totals", "compaction"),
    ]
    assert (told[0]["requested_by"], told[1]["status"]) == ("somebody", "done")


def test_celery_leaves_the_log_as_it_is():
    root = logging.getLogger()
    before = list(root.handlers), root.level

    app.log.setup(loglevel="DEBUG", redirect_stdouts=True)

    assert (list(root.handlers), root.level) == before


def test_a_worker_knows_the_request_that_asked(seen, transactional_db):
    task, found = seen
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=60):
        with bound_contextvars(request_id="r-8"):
            task.delay()
        deadline = time.monotonic() + 60
        while not found and time.monotonic() < deadline:
            time.sleep(0.05)

    assert [bound["request_id"] for bound in found] == ["r-8"]
