"""Services that views, tasks, commands and admin actions call: maintenance, rebuilds, changes of settings, pauses.

A maintenance run is a row from its request to its end. Its worker holds the state's lock while it carries the run out,
so a row that says `running` without that lock has lost its worker.
"""

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from kombu.exceptions import OperationalError as BrokerError
from psycopg.errors import LockNotAvailable

from tidegauge.state_backends import BACKENDS, BatchLedger, Catalog, Changelog, rebuild
from tidegauge.state_backends.errors import LifeError, SpecError, StateBusyError, TidegaugeError, UnknownPipelineError
from tidegauge.state_backends.ledger import driver_status, findings
from tidegauge.state_backends.ledger.state_lock import PATIENCE_MS, state_lock
from tidegauge.state_backends.life.move import move_to_backend, move_to_pipeline
from tidegauge.state_backends.life.rename import rename_pipeline, rename_state
from tidegauge.state_backends.life.retire import Retirement
from tidegauge.state_backends.repair.audit import Audit, audit
from tidegauge.state_backends.repair.rebuilding import Progress
from tidegauge.state_backends.schema import former
from tidegauge.state_backends.schema.former import Fate
from tidegauge.state_backends.schema.overrides import KEEP, Log, Terms, Ttl
from tidegauge.state_backends.synchronizer.membership import compact_logs
from tidegauge.webapp.accounts import revoked_tokens, usage
from tidegauge.webapp.accounts.audit.services import forget_old_entries, record, record_command
from tidegauge.webapp.accounts.services import rename_in_key_scopes
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.limits import rename_limits
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


class CatalogBusyError(TidegaugeError):
    """A driver is registering its states: try again in a moment."""


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


def pause_pipeline(*, name: str, requested_by: str) -> None:
    """Request that a pipeline pauses. Its driver ends the current batch and waits; a driver that starts later waits.

    A second request changes nothing. Raises UnknownPipelineError.
    """
    _set_desired_state(name, requested_by, paused=True)


def resume_pipeline(*, name: str, requested_by: str) -> None:
    """Request that a paused pipeline continues. Raises UnknownPipelineError."""
    _set_desired_state(name, requested_by, paused=False)


def change_state(*, name: str, ttl: Ttl = KEEP, changelog: Log = KEEP, requested_by: str) -> Terms:
    """Override the ttl or changelog of a state, or drop the override; return the settings that apply.

    ttl, changelog: arguments of Catalog.edit, which says when they take effect. Without a change nothing is written.
    Raises UnknownStateError, SpecError, and CatalogBusyError while a starting driver has locked the catalog.
    """
    with transaction.atomic():
        conn = readers.connection()
        conn.execute("SET LOCAL lock_timeout = '5s'")
        try:
            before, after = Catalog(conn).edit(name, ttl=ttl, changelog=changelog)
        except LockNotAvailable as error:
            raise CatalogBusyError(f"state {name!r}: a starting driver has locked the catalog; try again") from error
        if before != after:
            record("state.edit", f"state {name}", by=requested_by, before=before.document(), after=after.document())
    return after


def rebuild_state(*, state: str, to: str, resume_from: Any = None, requested_by: str) -> Iterator[Progress]:
    """Replace the rows of a state in a backend from its changelog, as of the committed batch; yield progress.

    Until it ends, the state is not served from that backend and no driver feeds it.

    to: a name in BACKENDS. resume_from: the last key that an interrupted run has completed.
    Raises UnknownStateError, PipelineHeldError while a driver runs, StateBusyError while another operation uses the
    state; SpecError for a state without a changelog, or without a table if the rows are to go into one.
    """
    with readers.own_connection() as conn:
        spec = Catalog(conn).get(state)
        log, backend = Changelog(conn, spec), BACKENDS[to]
        if backend.tables is not None and spec.backend != to:
            raise SpecError(f"state {state!r}: has no table, it lives in {spec.backend}; rebuild it there")
        after = None if resume_from is None else spec.check_key(resume_from)
        pipeline = State.objects.get(name=state).pipeline_id
        lock = state_lock(conn, state, "rebuild", patience_ms=PATIENCE_MS)
        with BatchLedger(conn, pipeline).idle(), lock as work:
            target, committed = backend.rows(conn, spec), log.extent().committed
            backend.begin_rebuild(conn, spec, goes_on=after is not None)
            if spec.backend == to:
                # Until it ends, because a driver would count on from half of the rows, and a reader miss the rest.
                findings.record(conn, state, str(findings.rebuilding(spec)))
            yield from rebuild(log, target, resume_from=after, work=work)
            backend.end_rebuild(conn, spec, committed)
            if spec.backend == to:
                findings.record(conn, state, "")
    record_command("state.rebuild", f"state {state}", by=requested_by, backend=to)


def retire(*, kind: former.Kind, name: str, fate: Fate, folder: Path | None = None, requested_by: str) -> Iterator[str]:
    """Retire a state, or a pipeline with its states: keep, archive or drop it; yield what was done, a line at a time.

    folder: for the archives. Call `finish_retirement` for a pipeline once its checkpoint and sources are gone.
    Raises what Retirement.run raises.
    """
    with readers.own_connection() as conn:
        done = Retirement(kind, name, fate, folder, requested_by).run(conn)
        yield from done
    record(f"{kind}.retire", f"{kind} {name}", by=requested_by, fate=fate, folder=str(folder or ""))


def finish_retirement(pipeline: str) -> None:
    """Note that nothing is left of a retired pipeline."""
    former.finish(readers.connection(), "pipeline", pipeline)


def forget_retirement(*, kind: former.Kind, name: str, requested_by: str) -> None:
    """Free a former name; rows that were kept under it may be fed again. Raises LifeError."""
    with transaction.atomic():
        conn = readers.connection()
        found = former.former(conn, kind, name)
        if found is None or found.unfinished:
            reason = "is not a former name" if found is None else "is not yet gone: run its retirement again first"
            raise LifeError(f"{kind} {name!r} {reason}")
        former.forget(conn, kind, name)
        record(f"{kind}.forget", f"{kind} {name}", by=requested_by, fate=found.fate)


def rename(*, kind: former.Kind, name: str, new: str, requested_by: str) -> None:
    """Rename a state, also in API keys, webhooks, alert rules and saved views; or a pipeline, with limits and history.

    Raises what rename_state raises.
    """
    with readers.own_connection() as conn:
        if kind == "pipeline":
            rename_pipeline(conn, name, new, by=requested_by)
            rename_limits(old=name, new=new)
            signals.pipeline_renamed.send(sender=None, old=name, new=new)
        else:
            rename_state(conn, name, new, by=requested_by, within=partial(_rename_elsewhere, old=name, new=new))
    record(f"{kind}.rename", f"{kind} {name}", by=requested_by, new=new)


def _rename_elsewhere(conn: psycopg.Connection, *, old: str, new: str) -> None:
    rename_in_key_scopes(conn, old=old, new=new)
    signals.state_renamed.send(sender=None, conn=conn, old=old, new=new)


def move_state(
    *, state: str, backend: str | None = None, pipeline: str | None = None, spout: str | None = None, requested_by: str
) -> int:
    """Move a state to another backend, or to another pipeline; return the rows copied. Raises as life/move.py says.

    spout: the spout of a pipeline that has not run yet.
    """
    with readers.own_connection() as conn:
        rows = 0
        if backend is not None:
            rows = move_to_backend(conn, state, backend)
        if pipeline is not None:
            move_to_pipeline(conn, state, pipeline, spout=spout)
    record("state.move", f"state {state}", by=requested_by, backend=backend, pipeline=pipeline)
    return rows


def audit_state(*, state: str, sample: int) -> Audit:
    """Compare keys of a state, chosen at random, with its changelog. Takes no lock, unlike a maintenance run.

    Raises UnknownStateError, and SpecError for a state without a changelog.
    """
    with readers.own_connection() as conn:
        return audit(conn, Catalog(conn).get(state), sample)


def _set_desired_state(name: str, requested_by: str, *, paused: bool) -> None:
    names = queries.pipeline_names()
    if name not in names:
        raise UnknownPipelineError.among(name, names)
    with transaction.atomic():
        driver_status.set_desired_state(readers.connection(), name, paused=paused, by=requested_by)
        record("pipeline.pause" if paused else "pipeline.resume", f"pipeline {name}", by=requested_by)


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
