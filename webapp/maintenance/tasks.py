"""The Celery tasks that maintain states, and the worker's entry in the list of running processes."""

from celery.signals import heartbeat_sent, worker_init, worker_shutdown

from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.membership import ProcessMembership
from tidegauge.webapp.celery import app
from tidegauge.webapp.core.pooler import PoolerError
from tidegauge.webapp.maintenance import services

_this_worker = ProcessMembership("worker")


@app.task(name=services.TASK)
def run_maintenance(run_id: int) -> None:
    services.run_maintenance(run_id)


@app.task(name="states.maintain_all")
def maintain_all(kind: str) -> None:
    services.maintain_all(kind)


@worker_init.connect
def refuse_pooler(**kwargs: object) -> None:
    try:
        readers.check_session("maintenance")
    except PoolerError as error:
        # SystemExit, because Celery only logs other exceptions of a signal handler and continues.
        raise SystemExit(str(error)) from error


# The membership reports with each heartbeat that Celery sends of its own.
@heartbeat_sent.connect
def heartbeat(**kwargs: object) -> None:
    _this_worker.heartbeat()


@worker_shutdown.connect
def leave(**kwargs: object) -> None:
    _this_worker.leave()
