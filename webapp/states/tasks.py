"""The Celery tasks of the states, and the worker's entry in the list of running processes."""

from celery import shared_task
from celery.signals import heartbeat_sent, worker_shutdown

from webapp.states import services
from webapp.states.membership import ProcessMembership

_this_worker = ProcessMembership("worker")


@shared_task(name=services.TASK)
def run_maintenance(run_id: int) -> None:
    services.run_maintenance(run_id)


@shared_task(name="states.maintain_all")
def maintain_all(kind: str) -> None:
    services.maintain_all(kind)


# Celery sends its own heartbeat regularly; the membership uses the same rhythm.
@heartbeat_sent.connect
def heartbeat(**kwargs: object) -> None:
    _this_worker.heartbeat()


@worker_shutdown.connect
def leave(**kwargs: object) -> None:
    _this_worker.leave()
