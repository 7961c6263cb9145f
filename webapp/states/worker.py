"""A worker among the members: it says that it lives, as drivers do, whenever Celery's own heartbeat goes."""

from contextlib import suppress

import psycopg
from celery.signals import heartbeat_sent, worker_shutdown

from state_backends.synchronizer.errors import SynchronizerError
from state_backends.synchronizer.membership import Membership
from webapp.states import stores

# A list for people to look at; a worker goes on without it, and tries again with the next heartbeat.
HARMLESS = (psycopg.Error, SynchronizerError)


class WorkerMembership:
    """The membership of this process, on a connection of its own, renewed when the database was away."""

    def __init__(self) -> None:
        self._conn: psycopg.Connection | None = None
        self._membership: Membership | None = None

    def heartbeat(self) -> None:
        try:
            if self._membership is None:
                self._join()
            else:
                self._membership.heartbeat()
        except HARMLESS:
            self._close()

    def leave(self) -> None:
        if self._membership is not None:
            with suppress(*HARMLESS):
                self._membership.leave()
        self._close()

    def _join(self) -> None:
        self._conn = stores.own_connection()
        membership = Membership(self._conn, "worker")
        membership.join()
        self._membership = membership

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = self._membership = None


_this_worker = WorkerMembership()


@heartbeat_sent.connect
def say_alive(**kwargs: object) -> None:
    _this_worker.heartbeat()


@worker_shutdown.connect
def say_goodbye(**kwargs: object) -> None:
    _this_worker.leave()
