"""One maintenance run, carried out: a page at a time, each recorded, until it is done, cancelled or fails."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

import psycopg
from django.conf import settings
from django.db.models.functions import Now
from structlog.contextvars import bound_contextvars

from state_backends import Catalog, StateSpec
from state_backends.journal.compaction import compact, sizes
from state_backends.journal.expiry import expire
from state_backends.journal.stored import StoredRows
from state_backends.journal.trim import Step
from webapp.states.models import MaintenanceRun
from webapp.states.redis_states import stored_rows

logger = logging.getLogger(__name__)

# The first half of the advisory lock's number; the ledger's is the one before.
LOCK_CLASS = 7103846

WORKER_DIED = "its worker died; what it had done stays done, so ask again for the rest"

FAIL_DEAD_RUNS = """
UPDATE tidemark.maintenance_run r SET status = 'failed', finished_at = now(), error = %(error)s
WHERE status = 'running' AND NOT tidemark.is_locked(%(lock_class)s, r.state)
"""


def lock(conn: psycopg.Connection, state: str) -> bool:
    """Take the state's maintenance lock for as long as `conn` lives; False if a run has it."""
    row = conn.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", [LOCK_CLASS, state]).fetchone()
    return bool(row and row[0])


def carry_out(conn: psycopg.Connection, run_id: int) -> None:
    """Do the work of a run that is marked running, and mark how it ended. conn: in autocommit mode, holds the lock."""
    run = MaintenanceRun.objects.get(pk=run_id)
    with bound_contextvars(run=run_id, kind=run.kind, state=run.state_id):
        logger.info("maintenance begins", extra={"requested_by": run.requested_by})
        status = _carry_out(conn, run)
        logger.info("maintenance is over", extra={"status": str(status)})


def _carry_out(conn: psycopg.Connection, run: MaintenanceRun) -> MaintenanceRun.Status:
    try:
        # A writer goes first; a page that cannot have its rows by then fails the run, which harms nothing.
        conn.execute("SET lock_timeout = '60s'")
        spec = Catalog(conn).get(run.state_id)
        stored = stored_rows(spec)
        _save(run, before=sizes(conn, spec, stored))
        finished = _work(run, WORK[run.kind](conn, spec, stored))
        status = MaintenanceRun.Status.DONE if finished else MaintenanceRun.Status.CANCELLED
        _save(run, after=sizes(conn, spec, stored), status=status, finished_at=Now())
        return status
    except Exception as error:
        logger.exception("%s failed", run)
        _save(run, error=f"{type(error).__name__}: {error}", status=MaintenanceRun.Status.FAILED, finished_at=Now())
        return MaintenanceRun.Status.FAILED


def _work(run: MaintenanceRun, steps: Iterator[Step]) -> bool:
    """Take the steps one by one. Returns False where the run was cancelled on the way."""
    done: dict[str, Step] = {}
    with closing(steps):  # type: ignore[type-var]
        for step in steps:
            done[step.step] = step
            if not _report(run, done):
                return False
    return True


def _report(run: MaintenanceRun, done: dict[str, Step]) -> bool:
    """Record progress. Returns False once the run is called off, in the same statement."""
    progress = {"steps": [{"step": step.step, "seen": step.seen, "removed": step.removed} for step in done.values()]}
    going = MaintenanceRun.objects.filter(pk=run.pk, cancel_requested=False)
    return bool(going.update(progress=progress)) or not _save(run, progress=progress)


def _save(run: MaintenanceRun, **columns) -> bool:
    return bool(MaintenanceRun.objects.filter(pk=run.pk).update(**columns))


def _compact(conn: psycopg.Connection, spec: StateSpec, stored: StoredRows | None) -> Iterator[Step]:
    return compact(conn, spec, stored, keep=timedelta(hours=settings.TIDEMARK_CHANGELOG_KEEP_HOURS))


WORK: dict[str, Callable[[psycopg.Connection, StateSpec, StoredRows | None], Iterator[Step]]] = {
    MaintenanceRun.Kind.COMPACTION: _compact,
    MaintenanceRun.Kind.EXPIRY: expire,
}
