"""Registers a process of the web application, such as a worker, in the list of running processes."""

from contextlib import suppress

import psycopg

from tidegauge.state_backends.errors import SynchronizerError
from tidegauge.state_backends.synchronizer.membership import HEARTBEAT_SECONDS, Membership
from tidegauge.webapp.catalog import readers

# Ignored, because the list only informs operators: the process works without it, and the next heartbeat joins again.
IGNORED_ERRORS = (psycopg.Error, SynchronizerError)


class ProcessMembership:
    """The membership of this process, on its own connection; it joins again after the database was unavailable.

    role: shown to operators. The owner calls `heartbeat` every `pause_seconds`, and `leave` at the end.
    """

    pause_seconds = HEARTBEAT_SECONDS

    def __init__(self, role: str) -> None:
        self._role = role
        self._conn: psycopg.Connection | None = None
        self._membership: Membership | None = None

    def heartbeat(self) -> None:
        try:
            if self._membership is None:
                self._join()
            else:
                self._membership.heartbeat()
        except IGNORED_ERRORS:
            self._close()

    def leave(self) -> None:
        if self._membership is not None:
            with suppress(*IGNORED_ERRORS):
                self._membership.leave()
        self._close()

    def _join(self) -> None:
        self._conn = readers.own_connection()
        membership = Membership(self._conn, self._role)
        membership.join()
        self._membership = membership

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = self._membership = None
