"""Plans: what a compaction or an expiry of some states would do, for somebody who is about to ask for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from psycopg import sql

from state_backends.committed import NOW, STATE_AND_LEDGER, live_sql
from webapp.states import selectors, stores
from webapp.states.models import MaintenanceRun
from webapp.states.selectors import StateSummary

# What is counted for a plan reads the table: about 0.2 s at this size.
COUNTED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Plan:
    """What a run would find. busy: the run of the state that is queued or running; another one has to wait for it.

    removable: rows that it would free by now, at most; None where they are too many to be counted, or are not in a
        table. horizon: batch and time up to which a compaction goes; None where nothing is old enough.
    """

    kind: str
    state: StateSummary
    busy: MaintenanceRun | None
    removable: int | None
    horizon: tuple[int, datetime] | None

    @property
    def keeps(self) -> timedelta:
        return keeps()

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do for it, now or later."""
        return self.kind == MaintenanceRun.Kind.EXPIRY and self.state.ttl is None


def keeps() -> timedelta:
    """Return how far back compaction leaves the past alone."""
    return timedelta(hours=settings.TIDEMARK_CHANGELOG_KEEP_HOURS)


def plans(kind: str, names: Sequence[str]) -> list[Plan]:
    """Return what a run of each state would do, by name. A fixed number of statements, however many states."""
    wanted = [state for state in selectors.states() if state.name in set(names)]
    going = MaintenanceRun.objects.filter(state__in=names, status__in=MaintenanceRun.UNFINISHED)
    busy = {run.state_id: run for run in going}
    horizons = _horizons(names)
    counted = _expired(wanted) if kind == MaintenanceRun.Kind.EXPIRY else _replaceable(wanted, horizons)
    return [
        Plan(kind, state, busy.get(state.name), counted.get(state.name), horizons.get(state.name)) for state in wanted
    ]


def older_than(state: StateSummary, ttl: timedelta) -> int | None:
    """Return how many keys would be past a ttl by now; None where they are too many to be counted, or in no table."""
    return _counts({state.name: _dead(state, sql.Literal(ttl))} if _is_countable(state) else {}).get(state.name)


HORIZONS = sql.SQL("""
SELECT s.name, b.txid, b.batch_time FROM {ledger}
CROSS JOIN LATERAL (
    SELECT b.txid, b.batch_time FROM tidemark.batch b
    WHERE b.pipeline = p.name AND b.txid < p.committed_txid AND b.batch_time <= now() - %s::interval
    ORDER BY b.txid DESC LIMIT 1
) b
WHERE s.name = ANY(%s)
""").format(ledger=STATE_AND_LEDGER)


def _horizons(names: Sequence[str]) -> dict[str, tuple[int, datetime]]:
    rows = stores.connection().execute(HORIZONS, [keeps(), list(names)])
    return {name: (txid, time) for name, txid, time in rows}


def _expired(states: Sequence[StateSummary]) -> dict[str, int]:
    at_hand = sql.SQL("tidemark.ttl_at_hand({})")
    return _counts(
        {
            state.name: _dead(state, at_hand.format(sql.Literal(state.name)))
            for state in states
            if state.ttl is not None and _is_countable(state)
        }
    )


def _dead(state: StateSummary, ttl: sql.Composable) -> sql.Composed:
    return sql.SQL("FROM {} t CROSS JOIN (SELECT {} AS ttl) at_hand WHERE NOT t.removed AND NOT {}").format(
        sql.Identifier("tidemark_state", state.name), ttl, live_sql("t", sql.SQL("at_hand.ttl"), NOW)
    )


def _replaceable(states: Sequence[StateSummary], horizons: dict[str, tuple[int, datetime]]) -> dict[str, int]:
    return _counts(
        {
            state.name: sql.SQL("FROM {} WHERE txid <= {}").format(
                sql.Identifier("tidemark_changelog", state.name), sql.Literal(horizons[state.name][0])
            )
            for state in states
            if state.changelog and state.name in horizons and _is_countable(state)
        }
    )


def _is_countable(state: StateSummary) -> bool:
    return state.backend == "postgres" and state.bytes <= COUNTED_BYTES


def _counts(sources: dict[str, sql.Composed]) -> dict[str, int]:
    if not sources:
        return {}
    counts = (sql.SQL("SELECT {}, count(*) {}").format(sql.Literal(name), rows) for name, rows in sources.items())
    found: Any = stores.connection().execute(sql.SQL(" UNION ALL ").join(counts))
    return dict(found.fetchall())
