"""Comparison: checks a store outside the ledger's database against the ledger, in both directions.

A crash can leave two differences, which are repaired: the committed batch is complete but not published, or an open
batch is partly written. Anything else is a finding, an error that names the remedy: the store is behind, ahead,
incomplete, or holds another attempt at a batch than the one that was committed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import psycopg

from tidegauge.state_backends.backends.guard import BatchRecord, GuardedMap, GuardPart, SpreadMap, StoreStatus
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.batch import attempt_name
from tidegauge.state_backends.spec.state_spec import StateSpec

LEDGER = """
SELECT p.open_txid, b.token, b.attempt, (b.keys_written ->> s.name)::bigint
FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline
LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = %s WHERE s.name = %s
"""


class LedgerSide(NamedTuple):
    """What the ledger knows about one state: the committed batch, how many keys it wrote, by which attempt.

    by: "" if that is unknown. keys: None if that is unknown. open_txid: the batch that is open, if any.
    """

    committed: int
    open_txid: int | None
    by: str
    keys: int | None


def ledger_side(conn: psycopg.Connection, spec: StateSpec, committed: int) -> LedgerSide:
    row = conn.execute(LEDGER, [committed, spec.name]).fetchone()
    open_txid, token, attempt, keys = row or (None, None, None, None)
    return LedgerSide(committed, open_txid, attempt_name(token, attempt) if token else "", keys)


def compare(rows: GuardedMap, ledger: LedgerSide) -> None:
    """Raise a FindingError unless `mend` can bring the store to the ledger's batch."""
    # Each guard alone, because servers of a spread state go back alone. Only the keys of a batch are of all together.
    parts = rows.parts(ledger.committed) if isinstance(rows, SpreadMap) else [_only_part(rows, ledger.committed)]
    for part in parts:
        _compare_part(rows.spec, part, ledger)
    _check_keys(rows.spec, [part.records[ledger.committed] for part in parts], ledger)
    next_keys = any(part.records[ledger.committed + 1].keys for part in parts)
    if ledger.open_txid is None and rows.spec.kind != "opaque" and next_keys:
        raise findings.ahead(rows.spec, ledger.committed + 1, ledger.committed)


def _only_part(rows: GuardedMap, txid: int) -> GuardPart:
    return GuardPart(rows.status(), {batch: rows.record(batch) for batch in range(txid, txid + 3)})


def _compare_part(spec: StateSpec, part: GuardPart, ledger: LedgerSide) -> None:
    status, own = part.status, part.records[ledger.committed]
    if status.is_rebuilding:
        raise findings.rebuilding(spec)
    if status.missing_rows:
        raise findings.lost_rows(spec, status.missing_rows)
    if status.published > ledger.committed:
        _check_ahead(spec, part, ledger)
    elif status.published < ledger.committed and not _is_unpublished(status, own, ledger):
        raise findings.behind(spec, status.published, ledger.committed)
    if own.by and ledger.by and (own.by != ledger.by or not own.is_reverted):
        raise findings.other_attempt(spec, ledger.committed)


def mend(rows: GuardedMap, ledger: LedgerSide) -> None:
    """Publish what a crash left unpublished, and undo what the ledger does not know. Call it only after `compare`."""
    if rows.status().published < ledger.committed:
        rows.publish(ledger.committed, ledger.keys if ledger.by else None)
    if ledger.open_txid is None:
        # The ledger may have been restored from a copy in which the next batch had not begun. Reverted here, because
        # nothing else does it then.
        rows.revert(ledger.committed + 1)


def _is_unpublished(status: StoreStatus, own: BatchRecord, ledger: LedgerSide) -> bool:
    """Return whether the store has the committed batch, and only its publication is missing."""
    if status.published != ledger.committed - 1:
        return False
    # Without a name the admitted txid decides, because batches of the first release have no token.
    return bool(own.by) or (status.admitted == ledger.committed and not ledger.by)


def _check_keys(spec: StateSpec, own: Sequence[BatchRecord], ledger: LedgerSide) -> None:
    if not all(part.by for part in own) or not ledger.by or ledger.keys is None:
        return
    if any(part.keys is None for part in own):
        return
    keys = sum(part.keys or 0 for part in own)
    if keys < ledger.keys or (spec.kind == "opaque" and keys > ledger.keys):
        raise findings.lost_keys(spec, ledger.committed, keys, ledger.keys)


def _check_ahead(spec: StateSpec, part: GuardPart, ledger: LedgerSide) -> None:
    """Raise StoreAheadError unless the store is one batch ahead, and that batch comes again or can be reverted."""
    ahead, published = ledger.committed + 1, part.status.published
    # A later batch, even one that was reverted since, has used up the versions that a revert needs.
    is_last = published == ahead and not part.records[ahead + 1].has_written
    if not is_last or (spec.kind != "opaque" and ledger.open_txid != ahead):
        raise findings.ahead(spec, published, ledger.committed)
