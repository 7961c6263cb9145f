"""Operations on states and pipelines that views, commands and admin actions call.

Pauses, changes of settings, rebuilds and audits, and what becomes of a name: it is renamed, moved or retired.
Maintenance runs, which a worker carries out, are in services.py.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from django.db import transaction
from psycopg.errors import LockNotAvailable

from tidegauge.state_backends import BACKENDS, BatchLedger, Catalog, Changelog, rebuild
from tidegauge.state_backends.errors import LifeError, SpecError, TidegaugeError, UnknownPipelineError
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
from tidegauge.webapp.accounts.audit.services import record, record_command
from tidegauge.webapp.accounts.services import rename_in_key_scopes
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.limits import rename_limits
from tidegauge.webapp.catalog.models import State
from tidegauge.webapp.maintenance import signals


class CatalogBusyError(TidegaugeError):
    """A driver is registering its states: try again in a moment."""


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
