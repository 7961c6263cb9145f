"""Announcing: pages show a pipeline as starting from before Spark is loaded, and what it waits for.

Spark takes seconds to start, on a busy machine a minute, and a driver acquires its pipeline only after that. Until then
the process holds a lock of its own, START_CLASS, which ends with it: a start that was killed does not look alive.
A pipeline that another process drives or starts is left alone.
"""

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psycopg

from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.errors import failure_reason
from tidegauge.state_backends.errors import PipelineHeldError
from tidegauge.state_backends.ledger import driver_status
from tidegauge.state_backends.ledger.driver_start import START_CLASS
from tidegauge.state_backends.ledger.state_lock import release_session_lock, take_session_lock
from tidegauge.state_backends.schema.catalog import Catalog

WAITS_FOR = "Spark to start"

# The database does not answer, or has no tables of this version yet. The driver will say so, or create them.
NOT_HERE = psycopg.OperationalError, psycopg.ProgrammingError

# Only of this process, and not once a driver has reported something else.
FAILED = """
UPDATE tidegauge.driver SET status = 'failed', message = %s, updated_at = clock_timestamp()
WHERE pipeline = %s AND status = 'starting' AND host = %s AND pid = %s
"""


class _Announced:
    """The pipelines that this process has announced and does not drive yet, and the connection that holds the locks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._conn: psycopg.Connection | None = None

    def add(self, pipelines: Sequence[Pipeline], dsn: str) -> None:
        with self._lock, suppress(*NOT_HERE):
            self._conn = connect(dsn, "starting")
            for pipeline in pipelines:
                if _announce(self._conn, pipeline):
                    self._names.append(pipeline.name)

    def remove(self, name: str) -> None:
        with self._lock:
            if name not in self._names or self._conn is None:
                return
            self._names.remove(name)
            with suppress(psycopg.Error):
                release_session_lock(self._conn, START_CLASS, name)
            if not self._names:
                self._conn.close()

    def end(self, reason: str) -> None:
        """Report the pipelines that were not reached as failed, if there is a reason."""
        with self._lock, suppress(psycopg.Error):
            for name in self._names if reason and self._conn else ():
                assert self._conn is not None
                self._conn.execute(FAILED, [reason, name, socket.gethostname(), os.getpid()])
        with self._lock:
            self._names.clear()
            if self._conn is not None:
                self._conn.close()


_announced = _Announced()


@contextmanager
def announced(pipelines: Sequence[Pipeline], dsn: str) -> Iterator[None]:
    """Show pipelines as starting until their drivers acquire them; if that fails, as failed."""
    _announced.add(pipelines, dsn)
    reason = ""
    try:
        yield
    except Exception as error:
        reason = "" if isinstance(error, PipelineHeldError) else failure_reason(error)
        raise
    finally:
        _announced.end(reason)


def acquired(name: str) -> None:
    """Note that a driver of this process has acquired its pipeline."""
    _announced.remove(name)


def _announce(conn: psycopg.Connection, pipeline: Pipeline) -> bool:
    name = pipeline.name
    if not take_session_lock(conn, START_CLASS, name, patience_ms=1):
        return False
    if conn.execute("SELECT tidegauge.has_driver(%s)", [name]).fetchone() == (True,):
        release_session_lock(conn, START_CLASS, name)
        return False
    Catalog(conn).register_pipeline(name, spout=pipeline.source.spout, description=pipeline.description)
    driver_status.register_driver(conn, name, WAITS_FOR)
    return True
