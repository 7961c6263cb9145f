"""The batch that a spread state shows: the one that the ledger has committed, because no server knows it of all others.

Buckets publish a batch before its commit, so that each can show it from then on. A reader takes batch and attempt from
the ledger, and asks the buckets for exactly these. Each compares them in the call that reads its rows, so a batch that
is taken back and comes again meanwhile is not mixed with itself, and the ledger need not be asked again. Only if a
bucket does not show the batch, the ledger says whether it has moved on. If not, the bucket has lost the batch.
"""

from collections.abc import Sequence

from psycopg import sql

from tidegauge.state_backends.committed import ledger_sql
from tidegauge.state_backends.errors import MovedOnError, OutOfReachError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.reader.reader import LedgerRow, ReadSteps, ShownRows
from tidegauge.state_backends.reader.scanned import CommittedRow, Published
from tidegauge.state_backends.reader.shown_batch import COLUMNS, LedgerBatch, ShownBatch, shown_again
from tidegauge.state_backends.spec.row import Key

COMMITTED = ledger_sql(
    "p.committed_txid, " + COLUMNS,
    sql.SQL("LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = p.committed_txid"),
).as_bytes()

# How often a read begins again if batches are committed faster than it reads.
MAX_READS = 100


class LedgerCommit(ShownBatch):
    """Reads of one spread state."""

    def versions(
        self, keys: Sequence[Key], at_txid: int | None
    ) -> ReadSteps[tuple[LedgerBatch, Sequence[CommittedRow]]]:
        for _ in range(MAX_READS):
            batch = yield from self._pinned(at_txid)
            shown, rows = yield ShownRows(keys, batch.published)
            if shown == batch.published:
                return batch, rows
            self._check_reach(batch)
            yield from self._refuse(batch, is_certain=True)
        raise self._moved_on(f"were committed during each of {MAX_READS} reads of {len(keys)} keys; ask for fewer keys")

    def pinned(self, at_txid: int | None) -> ReadSteps[Published | None]:
        return (yield from self._pinned(at_txid)).published

    def now(self, keys: Sequence[Key] = ()) -> ReadSteps[Published]:
        batch, _ = yield from self.versions(keys, None)
        return batch.published

    def published(self, published: Published, at_txid: int | None) -> ReadSteps[LedgerBatch]:
        """Return what the ledger has of a batch that was read. Raises MovedOnError if it has another attempt now."""
        batch = yield from self._batch(published.txid)
        if batch.txid > batch.newest or batch.published != published:
            raise self._moved_on(f"came again, {published.txid} among them, while the state was read; read again")
        return batch

    def explain(self, moved_on: MovedOnError, at_txid: int | None) -> ReadSteps[MovedOnError]:
        batch = yield from self._pinned(at_txid)
        self._check_reach(batch)
        yield from self._refuse(batch, is_certain=False)
        return moved_on

    def _pinned(self, at_txid: int | None) -> ReadSteps[LedgerBatch]:
        if at_txid is not None:
            return (yield from self.check_then(at_txid))
        row = yield LedgerRow(COMMITTED, [self._spec.name])
        if row is None:
            raise self._unknown()
        return LedgerBatch(*row)

    def _check_reach(self, batch: LedgerBatch) -> None:
        """Raise OutOfReachError for a batch before the committed one, which rows need not show."""
        if batch.txid < batch.newest:
            raise OutOfReachError(self._spec.name, batch.txid, batch.newest)

    def _refuse(self, batch: LedgerBatch, *, is_certain: bool) -> ReadSteps[None]:
        """Raise the finding that explains why a bucket does not show the committed batch, unless it has moved on.

        is_certain: a bucket did not show it after the ledger was asked, so if that has not moved on, it never did.
        """
        shown = yield from shown_again()
        now = yield from self._pinned(None)
        if now.published != batch.published:
            return
        if shown.txid < batch.txid:
            raise findings.behind(self._spec, shown.txid, batch.txid)
        if shown.txid > batch.txid + 1:
            raise findings.ahead(self._spec, shown.txid, batch.txid)
        if is_certain:
            raise findings.other_attempt(self._spec, batch.txid)

    def _moved_on(self, what: str) -> MovedOnError:
        return MovedOnError(f"state {self._spec.name!r}: batches {what}")
