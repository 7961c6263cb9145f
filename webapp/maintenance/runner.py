"""Maintenance of a state: the plan that is shown before a run, and the run itself.

A run works a page at a time and records each page, until it is done, is cancelled or fails.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models.functions import Now
from psycopg import sql
from structlog.contextvars import bound_contextvars

from tidegauge.state_backends import BACKENDS, Catalog, StateSpec
from tidegauge.state_backends.committed import NOW, STATE_AND_LEDGER, live_sql
from tidegauge.state_backends.errors import DeviationError
from tidegauge.state_backends.ledger.state_lock import StateWork
from tidegauge.state_backends.maintenance import Step, compact, expire, sizes
from tidegauge.state_backends.repair.audit import Audit, audit
from tidegauge.state_backends.schema.kept import drop_expired_of
from tidegauge.state_backends.spec.table import columns
from tidegauge.webapp.catalog import queries, readers
from tidegauge.webapp.catalog.models import MaintenanceRun
from tidegauge.webapp.catalog.state_summary import StateSummary

# Larger tables are not counted, because a count for a plan reads and sorts the table: 0.3 s at 11 MB, measured on two
# busy cores.
COUNTED_BYTES = 64 * 1024 * 1024

Horizons = dict[str, tuple[int, datetime, int]]


@dataclass(frozen=True)
class Plan:
    """What a run would do. busy: the queued or running run of the state, which another run has to wait for.

    removable: how many of `rows` rows it would free now; None if they are too many to be counted, or not in a table.
    horizon: batch and time up to which a compaction goes, and the oldest batch that can be read before it; None if
        nothing is old enough.
    """

    kind: str
    state: StateSummary
    busy: MaintenanceRun | None
    removable: int | None
    rows: int | None
    horizon: tuple[int, datetime, int] | None

    @property
    def keeps(self) -> timedelta:
        return keeps()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do for it, now or later."""
        needed = {MaintenanceRun.Kind.EXPIRY: self.state.ttl, MaintenanceRun.Kind.AUDIT: self.state.changelog or None}
        return self.kind in needed and needed[MaintenanceRun.Kind(self.kind)] is None


def keeps() -> timedelta:
    """Return for how long compaction keeps the history."""
    return timedelta(hours=settings.TIDEGAUGE_CHANGELOG_KEEP_HOURS)


def plans(kind: str, names: Sequence[str]) -> list[Plan]:
    """Return what a run of each state would do. Takes a fixed number of statements, however many states there are."""
    wanted = [state for state in queries.states() if state.name in set(names)]
    going = MaintenanceRun.objects.filter(state__in=names, status__in=MaintenanceRun.UNFINISHED)
    busy = {run.state_id: run for run in going}
    horizons = _horizons(names)
    counted = COUNTED[kind](wanted, horizons)
    return [
        Plan(kind, state, busy.get(state.name), removable, rows, horizons.get(state.name))
        for state in wanted
        for removable, rows in [counted.get(state.name, (None, None))]
    ]


def older_than(state: StateSummary, ttl: timedelta) -> int | None:
    """Return how many keys would be past a ttl now; None if they are too many to be counted, or not in a table."""
    counted = _counts({state.name: _dead(state, sql.Literal(ttl))} if _is_countable(state) else {})
    return counted[state.name][0] if counted else None


HORIZONS = sql.SQL("""
SELECT s.name, b.txid, b.batch_time, greatest(s.oldest_txid, s.since_txid, first.txid) FROM {ledger}
CROSS JOIN LATERAL (SELECT min(o.txid) AS txid FROM tidegauge.batch o WHERE o.pipeline = p.name) first
CROSS JOIN LATERAL (
    SELECT b.txid, b.batch_time FROM tidegauge.batch b
    WHERE b.pipeline = p.name AND b.txid < p.committed_txid AND b.batch_time <= now() - %s::interval
    ORDER BY b.txid DESC LIMIT 1
) b
WHERE s.name = ANY(%s)
""").format(ledger=STATE_AND_LEDGER)


def _horizons(names: Sequence[str]) -> Horizons:
    rows = readers.connection().execute(HORIZONS, [keeps(), list(names)])
    return {name: (txid, time, oldest) for name, txid, time, oldest in rows}


def _expired(states: Sequence[StateSummary]) -> dict[str, tuple[int, int]]:
    at_hand = sql.SQL("tidegauge.ttl_at_hand({})")
    return _counts(
        {
            state.name: _dead(state, at_hand.format(sql.Literal(state.name)))
            for state in states
            if state.ttl is not None and _is_countable(state)
        }
    )


def _dead(state: StateSummary, ttl: sql.Composable) -> sql.Composed:
    """Return SQL that counts the expired rows and all rows."""
    counts = "count(*) FILTER (WHERE NOT {}), count(*) FROM {} t CROSS JOIN (SELECT {} AS ttl) at_hand"
    return sql.SQL(counts + " WHERE NOT t.removed").format(
        live_sql("t", sql.SQL("at_hand.ttl"), NOW), sql.Identifier("tidegauge_state", state.name), ttl
    )


def _replaceable(states: Sequence[StateSummary], horizons: Horizons) -> dict[str, tuple[int, int]]:
    return _counts(
        {
            state.name: _replaced(state, *horizons[state.name])
            for state in states
            if state.changelog and state.name in horizons and _is_countable(state)
        }
    )


def _replaced(state: StateSummary, horizon: int, time: datetime, oldest: int) -> sql.Composed:
    """Return SQL that counts the entries that a compaction removes, and all. Up to `horizon`, one per key may stay."""
    counts = (
        "count(*) FILTER (WHERE t.txid <= {horizon} AND (t.txid < t.newest OR NOT {live})), count(*) FROM ("
        "SELECT txid, removed, updated_at, max(txid) FILTER (WHERE txid <= {horizon}) OVER ({of_key}) AS newest "
        "FROM {log}) t CROSS JOIN (SELECT tidegauge.ttl_at_hand({name}) AS ttl) at_hand"
    )
    at = sql.SQL("{}::timestamptz").format(sql.Literal(time))
    return sql.SQL(counts).format(
        horizon=sql.Literal(horizon),
        live=live_sql("t", sql.SQL("at_hand.ttl"), at),
        of_key=sql.SQL("PARTITION BY {}").format(columns([*state.key])) if state.key else sql.SQL(""),
        log=sql.Identifier("tidegauge_changelog", state.name),
        name=sql.Literal(state.name),
    )


# Functions by kind that count how many rows a run would free, and how many there are.
COUNTED: dict[str, Callable[[Sequence[StateSummary], Horizons], dict[str, tuple[int, int]]]] = {
    MaintenanceRun.Kind.COMPACTION: _replaceable,
    MaintenanceRun.Kind.EXPIRY: lambda states, _: _expired(states),
    MaintenanceRun.Kind.AUDIT: lambda states, _: {},
}


def _is_countable(state: StateSummary) -> bool:
    return BACKENDS[state.backend].tables is not None and state.bytes <= COUNTED_BYTES


def _counts(counts: dict[str, sql.Composed]) -> dict[str, tuple[int, int]]:
    if not counts:
        return {}
    selects = (sql.SQL("SELECT {}, {}").format(sql.Literal(name), pair) for name, pair in counts.items())
    rows = readers.connection().execute(sql.SQL(" UNION ALL ").join(selects))
    return {name: (removable, of) for name, removable, of in rows}


logger = logging.getLogger(__name__)

WORKER_DIED = "its worker died; completed pages are kept, run it again to continue"

# The step of an audit that says how many keys deviate.
DEVIATING = "keys that deviate"

# Reads the newest audit of each state that got as far as comparing keys.
AUDITS = """
SELECT DISTINCT ON (r.state) r.state, (step.value ->> 'seen')::bigint AS keys FROM tidegauge.maintenance_run r,
    jsonb_array_elements(r.progress -> 'steps') step WHERE r.kind = 'audit' AND step.value ->> 'step' = %(step)s
ORDER BY r.state, r.id DESC
"""


def deviations() -> dict[str, int]:
    """Return, by state, the keys that deviated in its newest audit."""
    return {row["state"]: row["keys"] for row in queries.fetch(AUDITS, {"step": DEVIATING})}


MADE_ROOM = "stopped to let another operation use the state; completed pages are kept, run it again to continue"

FAIL_DEAD_RUNS = """
UPDATE tidegauge.maintenance_run r SET status = 'failed', finished_at = now(), error = %(error)s
WHERE status = 'running' AND NOT tidegauge.is_worked_on(r.state, r.kind)
"""


def carry_out(work: StateWork, run_id: int) -> None:
    """Carry out a run that is marked as running, and record how it ended. work: holds the state's lock."""
    run = MaintenanceRun.objects.get(pk=run_id)
    with bound_contextvars(run=run_id, kind=run.kind, state=run.state_id):
        logger.info("maintenance begins", extra={"requested_by": run.requested_by})
        status = _carry_out(work, run)
        logger.info("maintenance is over", extra={"status": str(status)})


def _carry_out(work: StateWork, run: MaintenanceRun) -> MaintenanceRun.Status:
    conn = work.conn
    try:
        # Writers come first. A page that cannot lock its rows in this time fails the run, which does no harm.
        conn.execute("SET lock_timeout = '60s'")
        spec = Catalog(conn).get(run.state_id)
        _save(run, before=sizes(conn, spec))
        finished = _work(run, WORK[run.kind](work, spec), work)
        status = MaintenanceRun.Status.DONE if finished else MaintenanceRun.Status.CANCELLED
        _save(run, after=sizes(conn, spec), status=status, finished_at=Now())
        return status
    except Exception as error:
        logger.exception("%s failed", run)
        _save(run, error=f"{type(error).__name__}: {error}", status=MaintenanceRun.Status.FAILED, finished_at=Now())
        return MaintenanceRun.Status.FAILED


def _work(run: MaintenanceRun, steps: Iterator[Step], work: StateWork) -> bool:
    """Take the steps one by one. Returns False if the run was cancelled meanwhile, or stops to let a driver in."""
    done: dict[str, Step] = {}
    with closing(steps):  # type: ignore[type-var]
        for step in steps:
            done[step.step] = step
            if not _report(run, done):
                return False
            if work.is_awaited():
                return not _save(run, error=MADE_ROOM)
    return True


def _report(run: MaintenanceRun, done: dict[str, Step]) -> bool:
    """Record progress. Returns False if the run was cancelled, which the same statement checks."""
    progress = {"steps": [{"step": step.step, "seen": step.seen, "removed": step.removed} for step in done.values()]}
    going = MaintenanceRun.objects.filter(pk=run.pk, cancel_requested=False)
    return bool(going.update(progress=progress)) or not _save(run, progress=progress)


def _save(run: MaintenanceRun, **columns) -> bool:
    return bool(MaintenanceRun.objects.filter(pk=run.pk).update(**columns))


def _compact(work: StateWork, spec: StateSpec) -> Iterator[Step]:
    yield from compact(work.conn, spec, keep=keeps(), work=work)
    if drop_expired_of(work.conn, spec.name):
        yield Step("states that a reprocess replaced", 0, 0)


def _expire(work: StateWork, spec: StateSpec) -> Iterator[Step]:
    return expire(work.conn, spec, work=work)


def _audit(work: StateWork, spec: StateSpec) -> Iterator[Step]:
    found = audit(work.conn, spec, settings.TIDEGAUGE_AUDIT_KEYS)
    yield Step("keys compared", found.keys, 0)
    yield Step(DEVIATING, len(found.deviations), 0)
    report(spec.name, found)
    if not found.is_exact:
        raise DeviationError(
            f"{len(found.deviations)} of {found.keys} keys deviate from {found.by} as of batch {found.txid}, the first "
            f"is {found.deviations[0].key!r}; see docs/recovery.md, `An audit found a deviation`"
        )


def report(state: str, found: Audit) -> None:
    """Log deviations and losses that an audit found, as errors, because alerts are made from these."""
    for loss in found.losses:
        logger.error("state %s: %s", state, loss)
    if found.deviations:
        keys = [list(each.key) for each in found.deviations[:10]]
        logger.error("state %s: %s of %s keys deviate from %s", state, len(found.deviations), found.keys, found.by)
        logger.error("state %s: keys that deviate, the first 10: %s", state, keys)


WORK: dict[str, Callable[[StateWork, StateSpec], Iterator[Step]]] = {
    MaintenanceRun.Kind.COMPACTION: _compact,
    MaintenanceRun.Kind.EXPIRY: _expire,
    MaintenanceRun.Kind.AUDIT: _audit,
}
