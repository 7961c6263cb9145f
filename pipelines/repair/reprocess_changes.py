"""Reprocess changes: finds results that a reprocess would change, because they depended on when the batches ran.

A reprocess feeds the same input today, in fewer batches. A key that had expired and started again from zero does not
expire between two of these batches, and an event that was too late for its batch may be in time for a larger one. Both
are reported before the states are replaced, and must be accepted.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import psycopg

from tidegauge.pipelines.repair.recountable import find_position
from tidegauge.state_backends.errors import ChangedResultError
from tidegauge.state_backends.schema.counted import CountedInput
from tidegauge.state_backends.spec.state_spec import StateSpec


def check_changes(pipeline: str, changes: Iterable[str], way_out: str, *, accepted: bool) -> None:
    """Raise ChangedResultError if there are changes and they are not accepted. way_out: what else can be done."""
    named = "; ".join(changes)
    if named and not accepted:
        raise ChangedResultError(
            f"pipeline {pipeline!r}: a reprocess gives other results than the batches did: {named}; {way_out}, or "
            "accept the changes with --accept-changes"
        )


def ended_keys(conn: psycopg.Connection, specs: Iterable[StateSpec]) -> Iterator[str]:
    """Yield a sentence for each state whose keys may have expired since its first batch."""
    for spec in specs:
        found = find_position(conn, spec.name)
        if found is not None and not found.is_younger(datetime.now(UTC)):
            yield (
                f"keys of state {spec.name!r} end {found.shortest_ttl} after their last update, and those that have "
                "ended are counted from their first event again"
            )


def late_events(was: CountedInput, now: CountedInput) -> Iterator[str]:
    """Yield how many late events the batches and the reprocess have left out, if the numbers differ.

    More late events are not reported if the reprocess has also read more rows, because it may be ahead.
    """
    if was.dropped is None or now.dropped is None:
        return
    if now.dropped < was.dropped or (now.dropped > was.dropped and now.rows == was.rows):
        yield f"{was.dropped} late events were left out, and {now.dropped} by the reprocess"
