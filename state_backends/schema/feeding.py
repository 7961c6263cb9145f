"""Feeding: up to which batch a state, or one of its measures, has been fed by its pipeline.

A release may leave out a state, and an older release that is deployed again lacks the measures of the newer one. What
is left out stays stored and is served, with the batch that fed it last. If it is declared again after more batches were
committed, its values would lack those but be served as exact. That is refused, unless the operator accepts the gap.
Then `since_txid`, or `measures_since` for a measure, says from which batch on the values are complete.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from tidegauge.state_backends.errors import StateGapError
from tidegauge.state_backends.spec.state_spec import StateSpec


@dataclass(frozen=True)
class Feeding:
    """last_fed_txid: the last batch that the state was fed; None while it is being fed.

    measures: those that are not being fed, and the last batch that each of them was fed.
    """

    last_fed_txid: int | None = None
    measures: Mapping[str, int] = field(default_factory=dict)


def feeding(conn: psycopg.Connection, name: str) -> Feeding:
    """Return how far a state is fed; a state that is not registered counts as fed."""
    row = conn.execute(
        "SELECT last_fed_txid, measures_last_fed::text FROM tidegauge.state WHERE name = %s", [name]
    ).fetchone()
    return Feeding() if row is None else Feeding(row[0], json.loads(row[1]))


def check_gaps(conn: psycopg.Connection, pipeline: str, specs: Sequence[StateSpec]) -> None:
    """Check that no batch was committed without a state or measure that is declared again. Raises StateGapError."""
    committed = _committed(conn, pipeline)
    for spec in specs:
        found = feeding(conn, spec.name)
        missed = {f"measure {name!r}": last for name, last in found.measures.items() if name in spec.measures}
        if found.last_fed_txid is not None:
            missed["it"] = found.last_fed_txid
        for what, last in missed.items():
            if last < committed:
                raise StateGapError(
                    f"state {spec.name!r}: {what} was not fed by batches {last + 1} to {committed} of pipeline "
                    f"{pipeline!r}, which ran without it, so its values would miss them; run with --reprocess to feed "
                    "everything again, declare it under another name to start empty, or run with --accept-gap to keep "
                    f"its values, marked as complete only from batch {committed + 1} on"
                )


def record_feeding(
    conn: psycopg.Connection, pipeline: str, specs: Sequence[StateSpec], unfed: Mapping[str, Sequence[str]]
) -> None:
    """Record what the pipeline feeds from now on, in the transaction that registers its states.

    specs: the states it feeds. unfed: state to its measures that are stored but not declared any more. For what is fed
    again after a gap, this records since which batch it is complete.
    """
    committed = _committed(conn, pipeline)
    conn.execute(
        "UPDATE tidegauge.state SET last_fed_txid = %s "
        "WHERE pipeline = %s AND last_fed_txid IS NULL AND name <> ALL(%s)",
        [committed, pipeline, [spec.name for spec in specs]],
    )
    for spec in specs:
        _record_fed(conn, spec, unfed.get(spec.name, []), feeding(conn, spec.name), committed)


def take_back_feeding(conn: psycopg.Connection, pipeline: str, txid: int) -> None:
    """Record that batch `txid` is reverted in every state of the pipeline, including those that are not fed."""
    conn.execute(
        "UPDATE tidegauge.state SET "
        "last_fed_txid = CASE WHEN last_fed_txid > %(last)s THEN %(last)s ELSE last_fed_txid END, measures_last_fed = "
        "(SELECT coalesce(jsonb_object_agg(key, least(value::bigint, %(last)s)), '{}') "
        "FROM jsonb_each_text(measures_last_fed)) "
        "WHERE pipeline = %(pipeline)s AND (last_fed_txid > %(last)s OR measures_last_fed <> '{}')",
        {"pipeline": pipeline, "last": txid - 1},
    )


def _record_fed(
    conn: psycopg.Connection, spec: StateSpec, unfed: Sequence[str], before: Feeding, committed: int
) -> None:
    after = {measure: before.measures.get(measure, committed) for measure in unfed}
    if before == Feeding(None, after):
        return
    missed = {name: committed for name, last in before.measures.items() if name not in after and last < committed}
    conn.execute(
        "UPDATE tidegauge.state SET since_txid = CASE WHEN last_fed_txid < %(committed)s THEN %(committed)s "
        "ELSE since_txid END, last_fed_txid = NULL, measures_last_fed = %(after)s::jsonb, "
        "measures_since = measures_since || %(missed)s::jsonb WHERE name = %(name)s",
        {"committed": committed, "after": json.dumps(after), "missed": json.dumps(missed), "name": spec.name},
    )


def _committed(conn: psycopg.Connection, pipeline: str) -> int:
    row = conn.execute("SELECT committed_txid FROM tidegauge.pipeline WHERE name = %s", [pipeline]).fetchone()
    return int(row[0]) if row else 0
