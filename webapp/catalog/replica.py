"""Replica: one streaming standby, its connections, and its standing, which says whether it may answer.

Its connections are read-only. They are closed at once when the server stops answering, so that a request that waits for
it asks another server. An answer that the server gave after its promotion is discarded.
"""

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import dup
from typing import Any

import psycopg
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from tidegauge.state_backends.session import connection_options
from tidegauge.webapp.catalog.readers import PRIMARY
from tidegauge.webapp.catalog.standing import Facts, Standing, facts

logger = logging.getLogger(__name__)

# A server that neither answers nor refuses for this long counts as lost.
SILENT_SECONDS = 3.0
# A result older than this is ignored, because a round of checks takes less time even if servers do not answer.
OUTDATED_SECONDS = 15.0

# Parameters of libpq, so that a host that vanishes is noticed within seconds.
CLIENT: dict[str, Any] = {
    "connect_timeout": 2,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 3_000,
}
DATABASE_GONE = (psycopg.OperationalError, psycopg.InterfaceError)
# Errors of statements that a standby cancels, because they keep it from replaying the log.
CONFLICTS = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)

NOT_CHECKED = "it has not been checked yet"


class PromotedError(Exception):
    """The server answered as a primary, but another primary may be receiving the writes."""


class ReplicaConnection(psycopg.Connection[Any]):
    """source: the replica's name, under which readers are cached."""

    source = PRIMARY

    def check_promotion(self) -> None:
        # Needs no query, because the server reports the parameter before it reports that a statement is done.
        if self.info.parameter_status("in_hot_standby") == "off":
            raise PromotedError("it was promoted")


class Replica:
    """One standby. name: host and port. standing: the result of the last check."""

    def __init__(self, conninfo: str) -> None:
        given = conninfo_to_dict(conninfo)
        self.name = f"{given.get('host', '')}:{given.get('port') or 5432}"
        self.standing = Standing(self.name, NOT_CHECKED)
        self._conninfo, self._options = conninfo, given.get("options") or ""
        self._lock = threading.Lock()
        self._open: set[ReplicaConnection] = set()
        self._idle: deque[ReplicaConnection] = deque()
        self._asking: ReplicaConnection | None = None
        self._identity: dict[str, str] | None = None

    @property
    def is_used(self) -> bool:
        return self.standing.is_used and time.monotonic() - self.standing.checked_at < OUTDATED_SECONDS

    @property
    def current_standing(self) -> Standing:
        if self.standing.is_used and not self.is_used:
            return replace(self.standing, reason="it has not been checked for a while", lag_seconds=None)
        return self.standing

    def stand(self, standing: Standing) -> None:
        before, self.standing = self.standing, standing
        if standing.reason and (before.is_used or before.reason == NOT_CHECKED):
            logger.warning("replica %s is left out: %s", self.name, standing.reason)
        elif standing.is_used and not before.is_used:
            logger.info("replica %s is used", self.name)
        if standing.reason:
            self._close_idle()

    def failed(self, error: Exception) -> None:
        """Leave the replica out until the next check, if a request's error means that it is gone or was promoted."""
        logger.debug("replica %s is passed over: %s", self.name, type(error).__name__)
        if isinstance(error, PromotedError):
            self.stand(replace(self.standing, reason=str(error)))
        elif isinstance(error, DATABASE_GONE) and not isinstance(error, CONFLICTS):
            self.stand(replace(self.standing, reason=no_answer(error)))

    @contextmanager
    def lent(self) -> Iterator[ReplicaConnection]:
        """Lend an idle connection, or open one. Raises PromotedError at its end, so that the answer is not used."""
        try:
            conn = self._idle.pop()
        except IndexError:
            conn = self.connect()
        try:
            yield conn
            conn.check_promotion()
        except DATABASE_GONE:
            self.close(conn)
            raise
        finally:
            if self.is_used and not conn.closed:
                self._idle.append(conn)
            else:
                self.close(conn)

    def connect(self) -> ReplicaConnection:
        """Open a connection in autocommit mode. Close it with `close`."""
        ours = connection_options(
            timezone="UTC",
            default_transaction_read_only="on",  # explicitly, because a promoted server accepts writes
            statement_timeout=f"{settings.TIDEGAUGE_STATEMENT_TIMEOUT_MS:d}",
        )
        conn = ReplicaConnection.connect(
            self._conninfo,
            autocommit=True,
            application_name="tidegauge replica reads",
            options=f"{self._options} {ours}".strip(),
            prepare_threshold=settings.TIDEGAUGE_PREPARE_AFTER or None,
            **CLIENT,
        )
        conn.source = self.name
        with self._lock:
            self._open.add(conn)
        return conn

    def close(self, conn: ReplicaConnection) -> None:
        # Under the lock, because `cut` could otherwise use a file descriptor that has been reused by then.
        with self._lock:
            self._open.discard(conn)
            conn.close()

    def ask(self) -> Facts:
        """Return what the server reports about itself. Raises psycopg.Error, without an answer after SILENT_SECONDS."""
        if self._asking is None or self._asking.closed:
            self._asking, self._identity = self.connect(), None
        with cut_if_silent(self.cut):
            found = facts(self._asking, self._identity)
        self._identity = found.identity
        return found

    def cut(self) -> None:
        """End all connections at once, including those that wait for an answer."""
        with self._lock:
            for conn in self._open:
                shut_down(conn)

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self.close(self._idle.pop())


@contextmanager
def cut_if_silent(cut: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(SILENT_SECONDS, cut)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def shut_down(conn: psycopg.Connection[Any]) -> None:
    # The socket is shut down, because closing its file descriptor would not wake a thread that waits for an answer.
    with suppress(OSError, psycopg.Error), socket.socket(fileno=dup(conn.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


def no_answer(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"it does not answer: {lines[0][:200]}"
