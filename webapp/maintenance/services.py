"""Maintenance runs: compactions, expiries and audits, as views, tasks, commands and admin actions ask for them.

A run is a row from its request to its end. Its worker holds the state's lock while it carries the run out,
so a row that says `running` without that lock has lost its worker.
"""

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError

from tidegauge.state_backends import Catalog
from tidegauge.state_backends.errors import StateBusyError, TidegaugeError
from tidegauge.state_backends.ledger.state_lock import state_lock
from tidegauge.state_backends.synchronizer.membership import compact_logs
from tidegauge.webapp.accounts import revoked_tokens, usage
from tidegauge.webapp.accounts.audit.services import forget_old_entries, record
from tidegauge.webapp.catalog import readers
from tidegauge.webapp.catalog.models import IdempotencyKey, MaintenanceRun, State
from tidegauge.webapp.catalog.runs import UnfinishedRunError, find_run
from tidegauge.webapp.celery import app
from tidegauge.webapp.maintenance import idempotency, runner, signals
from tidegauge.webapp.maintenance.idempotency import IdempotentRequest

logger = logging.getLogger(__name__)

Status, Kind = MaintenanceRun.Status, MaintenanceRun.Kind

# The states that can use a run, by kind; a compaction can be used by all.
MAINTAINED: dict[str, Callable[[], QuerySet[State]]] = {
    Kind.EXPIRY: lambda: State.objects.exclude(ttl=None),
    Kind.AUDIT: lambda: State.objects.filter(definition__changelog=True),
}

TASK = "states.run_maintenance"
SCHEDULE = "schedule"

# A message that has not arrived by then may have been lost by the broker. Delivering one twice does no harm.
SEND_AGAIN_AFTER = timedelta(hours=1)


class RunFinishedError(TidegaugeError):
    """The run is over: there is nothing to cancel."""


class BrokerUnavailableError(TidegaugeError):
    """No task could be queued: restart the broker and ask again."""


def request_maintenance(*, kind: str, state: str, requested_by: str) -> MaintenanceRun:
    """Queue a compaction, an expiry or an audit of a state for the workers, and return the run.

    Raises UnknownStateError, UnfinishedRunError while another run of the state is queued or running, and
    BrokerUnavailableError if no task can be queued.
    """
    with transaction.atomic():
        run = _create(kind, state, requested_by)
        transaction.on_commit(partial(_send, run.id))
    return run


def request_maintenance_once(
    *, kind: str, state: str, requested_by: str, request: IdempotentRequest
) -> tuple[MaintenanceRun, bool]:
    """Queue a run as request_maintenance does. Returns the run, and whether an earlier same request has queued it.

    Raises IdempotencyKeyReusedError as well. A request that failed for any reason may be sent again.
    """
    with transaction.atomic():
        row = idempotency.claim(request)
        before = idempotency.run_of(row) if idempotency.was_sent(row, request) else None
        if before is not None:
            return before, True
        run = _create(kind, state, requested_by)
        idempotency.keep(row, request, run)
        transaction.on_commit(partial(_send_or_forget, run.id, row))
    return run, False


def maintain_now(*, kind: str, state: str, requested_by: str) -> MaintenanceRun:
    """Maintain a state here and now, and return the finished run. Raises as request_maintenance does."""
    with transaction.atomic():
        run = _create(kind, state, requested_by)
    run_maintenance(run.id)
    run.refresh_from_db()
    return run


def run_maintenance(run_id: int) -> None:
    """Carry out a queued run. Does nothing if it has ended or another worker has it, because a task may come twice.

    Failures are recorded in the run, including that another operation uses the state. Raises UnknownRunError.
    """
    run = find_run(run_id)
    with readers.own_connection() as conn:
        try:
            with state_lock(conn, run.state_id, run.kind) as work:
                if _claim(run_id):
                    runner.carry_out(work, run_id)
        except StateBusyError as busy:
            if busy.work not in Kind.values:
                _fail_queued(run_id, str(busy))


def cancel_maintenance(run_id: int, *, requested_by: str) -> MaintenanceRun:
    """Cancel a run: a queued one at once, a running one after its current page.

    Raises UnknownRunError, and RunFinishedError for a run that has ended.
    """
    fail_dead_runs()
    with transaction.atomic():
        cancelled = _cancel(run_id)
        found = find_run(run_id)
        if cancelled:
            record("maintenance.cancel", f"state {found.state_id}", by=requested_by, kind=found.kind, run=run_id)
    if not cancelled:
        raise RunFinishedError(f"maintenance run {run_id} is {found.status} already; there is nothing to cancel")
    return found


def maintain_all(kind: str) -> list[MaintenanceRun]:
    """Queue a run for every state that can use one, and delete old records. Returns the new runs.

    A compaction also replaces the synchronizers' logs by their current values, immediately.
    """
    fail_dead_runs()
    _forget_old_runs()
    forget_old_entries()
    usage.forget_old()
    signals.forgetting_old.send(sender=None)
    revoked_tokens.forget_expired()
    _send_lost_runs_again()
    if kind == Kind.COMPACTION:
        with readers.own_connection() as conn:
            compact_logs(conn)
    states = MAINTAINED.get(kind, State.objects.all)()
    return [run for state in states if (run := _request_unless_busy(kind, state.name))]


def fail_dead_runs() -> int:
    """Mark runs as failed whose worker is gone. Returns their number."""
    # PostgreSQL checks the row again once it has its lock, so a run that ends meanwhile is left alone.
    with connection.cursor() as cursor:
        cursor.execute(runner.FAIL_DEAD_RUNS, {"error": runner.WORKER_DIED})
        return cursor.rowcount


def _create(kind: str, state: str, requested_by: str) -> MaintenanceRun:
    fail_dead_runs()
    # Lock the state's row, so that the second of two requests at once waits and finds the first one's run.
    if not State.objects.select_for_update(no_key=True).filter(name=state).exists():
        Catalog(readers.connection()).get(state)
    going = MaintenanceRun.objects.filter(state=state, status__in=MaintenanceRun.UNFINISHED).first()
    if going is not None:
        raise UnfinishedRunError(
            f"state {state!r}: {going.kind} {going.id} is {going.status} already, asked for by {going.requested_by}; "
            "wait until it is done, or cancel it",
            going.id,
        )
    run = MaintenanceRun.objects.create(kind=Kind(kind), state_id=state, requested_by=requested_by)
    record("maintenance.request", f"state {state}", by=requested_by, kind=kind, run=run.id)
    return run


def _cancel(run_id: int) -> bool:
    run = MaintenanceRun.objects.filter(pk=run_id)
    return bool(
        run.filter(status=Status.QUEUED).update(status=Status.CANCELLED, cancel_requested=True, finished_at=Now())
        or run.filter(status=Status.RUNNING).update(cancel_requested=True)
    )


def _claim(run_id: int) -> bool:
    run = MaintenanceRun.objects.filter(pk=run_id)
    if run.filter(status=Status.QUEUED).update(status=Status.RUNNING, started_at=Now()):
        return True
    # This process holds the state's lock, so a run that still says `running` has lost its worker.
    run.filter(status=Status.RUNNING).update(status=Status.FAILED, finished_at=Now(), error=runner.WORKER_DIED)
    return False


def _fail_queued(run_id: int, reason: str) -> None:
    queued = MaintenanceRun.objects.filter(pk=run_id, status=Status.QUEUED)
    queued.update(status=Status.FAILED, finished_at=Now(), error=reason)


def _send(run_id: int) -> None:
    try:
        app.send_task(TASK, args=[run_id])
    except BrokerError as error:
        reason = f"the task queue does not answer ({error}); check that Redis runs, and try again"
        _fail_queued(run_id, reason)
        raise BrokerUnavailableError(reason) from error


def _send_or_forget(run_id: int, row: IdempotencyKey) -> None:
    try:
        _send(run_id)
    except BrokerUnavailableError:
        idempotency.forget(row)
        raise


def _request_unless_busy(kind: str, state: str) -> MaintenanceRun | None:
    try:
        return request_maintenance(kind=kind, state=state, requested_by=SCHEDULE)
    except UnfinishedRunError as busy:
        logger.info("not scheduled: %s", busy)
        return None


def _send_lost_runs_again() -> None:
    lost = MaintenanceRun.objects.filter(status=Status.QUEUED, requested_at__lt=timezone.now() - SEND_AGAIN_AFTER)
    for run in lost:
        _send(run.id)


def _forget_old_runs() -> None:
    horizon = timezone.now() - timedelta(days=settings.TIDEGAUGE_KEEP_DAYS)
    MaintenanceRun.objects.filter(finished_at__lt=horizon).delete()
    idempotency.forget_old()
