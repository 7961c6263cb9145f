"""Comparison: a store outside the ledger's database against the ledger, in both directions.

A crash leaves two differences behind, which are made good: the committed batch is complete and not published, and an
open batch is partly written. Everything else is a finding, which is refused with the remedy: the store is behind,
ahead, incomplete, or holds another attempt at a batch than the one that was committed.
"""

from typing import NamedTuple

import psycopg

from tidegauge.state_backends.backends.guard import BatchRecord, GuardedMap, StoreStatus
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.batch import attempt_name
from tidegauge.state_backends.spec.state_spec import StateSpec

LEDGER = """
SELECT p.open_txid, b.token, b.attempt, (b.keys_written ->> s.name)::bigint
FROM tidegauge.state s JOIN tidegauge.pipeline p ON p.name = s.pipeline
LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = %s WHERE s.name = %s
"""


class LedgerSide(NamedTuple):
    """What the ledger says of one state: the committed batch, how many keys it wrote, by which attempt.

    by: "" where that is unknown. keys: None likewise. open_txid: the batch that is open, if any.
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
    """Raise a FindingError unless `mend` brings the store to the ledger's batch."""
    spec, status = rows.spec, rows.status()
    if status.is_rebuilding:
        raise findings.rebuilding(spec)
    if status.missing_rows:
        raise findings.lost_rows(spec, status.missing_rows)
    own = rows.record(ledger.committed)
    if status.published > ledger.committed:
        _check_ahead(rows, status, ledger)
    elif status.published < ledger.committed and not _is_unpublished(status, own, ledger):
        raise findings.behind(spec, status.published, ledger.committed)
    _check_content(spec, own, ledger)
    if ledger.open_txid is None and spec.kind != "opaque" and rows.record(ledger.committed + 1).keys:
        raise findings.ahead(spec, ledger.committed + 1, ledger.committed)


def mend(rows: GuardedMap, ledger: LedgerSide) -> None:
    """Publish what a crash left unpublished, and undo what the ledger does not know. Only after `compare`."""
    if rows.status().published < ledger.committed:
        rows.publish(ledger.committed, ledger.keys if ledger.by else None)
    if ledger.open_txid is None:
        # The ledger may have been restored from a copy in which the next batch had not begun: nothing else reverts it.
        rows.revert(ledger.committed + 1)


def _is_unpublished(status: StoreStatus, own: BatchRecord, ledger: LedgerSide) -> bool:
    """Whether the store has the committed batch, and only its driver's last word is lacking."""
    if status.published != ledger.committed - 1:
        return False
    # Batches of the first release have no token.
    return bool(own.by) or (status.admitted == ledger.committed and not ledger.by)


def _check_content(spec: StateSpec, own: BatchRecord, ledger: LedgerSide) -> None:
    if not own.by or not ledger.by:
        return
    if own.by != ledger.by or not own.is_reverted:
        raise findings.other_attempt(spec, ledger.committed)
    if own.keys is None or ledger.keys is None:
        return
    if own.keys < ledger.keys or (spec.kind == "opaque" and own.keys > ledger.keys):
        raise findings.lost_keys(spec, ledger.committed, own.keys, ledger.keys)


def _check_ahead(rows: GuardedMap, status: StoreStatus, ledger: LedgerSide) -> None:
    """Raise StoreAheadError unless the store is one batch ahead and that one comes again, or can be reverted."""
    ahead, spec = ledger.committed + 1, rows.spec
    # A batch after it has used up the versions before it, also if that batch was reverted since.
    is_last = status.published == ahead and not rows.record(ahead + 1).has_written
    if not is_last or (spec.kind != "opaque" and ledger.open_txid != ahead):
        raise findings.ahead(spec, status.published, ledger.committed)
