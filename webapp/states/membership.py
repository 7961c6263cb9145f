"""A process of ours among the members: it says that it lives, as drivers do, so that operators see it."""

from contextlib import suppress

import psycopg

from state_backends.errors import SynchronizerError
from state_backends.synchronizer.membership import HEARTBEAT_SECONDS, Membership
from webapp.states import readers

# A list for people to look at; the process goes on without it, and tries again with the next heartbeat.
HARMLESS = (psycopg.Error, SynchronizerError)


class ProcessMembership:
    """The membership of this process, on a connection of its own, renewed when the database was away.

    role: what it is, for people. Somebody calls `heartbeat` every `pause_seconds`, and `leave` at the end.
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
        except HARMLESS:
            self._close()

    def leave(self) -> None:
        if self._membership is not None:
            with suppress(*HARMLESS):
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
