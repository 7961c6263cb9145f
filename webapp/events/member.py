"""The process among the members, so that operators see that it lives, as they see drivers and workers."""

from contextlib import suppress

import psycopg

from state_backends.synchronizer.errors import SynchronizerError
from state_backends.synchronizer.membership import HEARTBEAT_SECONDS, Membership
from webapp.states import stores

# A list for people to look at; the process goes on without it, and tries again with the next heartbeat.
HARMLESS = (psycopg.Error, SynchronizerError)


class EventsMember:
    """Its connection is its own, and renewed when the database was away."""

    pause_seconds = HEARTBEAT_SECONDS

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
        membership = Membership(self._conn, "events")
        membership.join()
        self._membership = membership

    def _close(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = self._membership = None
