"""A worker among the members: it says that it lives whenever Celery's own heartbeat goes."""

from celery.signals import heartbeat_sent, worker_shutdown

from webapp.states.membership import ProcessMembership

_this_worker = ProcessMembership("worker")


@heartbeat_sent.connect
def say_alive(**kwargs: object) -> None:
    _this_worker.heartbeat()


@worker_shutdown.connect
def say_goodbye(**kwargs: object) -> None:
    _this_worker.leave()
