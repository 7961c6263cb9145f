"""The batch that a store outside of the ledger's database shows, compared with the ledger in every read.

All of it is work in steps, so that a lookup on an event loop finds what one in a thread finds.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import LiteralString, NamedTuple, cast

from psycopg import sql

from tidegauge.state_backends.committed import ledger_sql
from tidegauge.state_backends.errors import MovedOnError, NotCommittedError, OutOfReachError, UnknownStateError
from tidegauge.state_backends.ledger import findings
from tidegauge.state_backends.ledger.batch import attempt_name
from tidegauge.state_backends.reader.reader import CommittedBatch, LedgerRow, ReadSteps, ShownRows
from tidegauge.state_backends.reader.scanned import CommittedRow, Published
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

# Token, attempt and time of a batch, the epoch, the newest committed txid, the open one, and the oldest batch whose
# time is known.
COLUMNS: LiteralString = (
    "coalesce(b.token, ''), coalesce(b.attempt, 0), b.batch_time, p.epoch, p.committed_txid, p.open_txid, "
    "(SELECT coalesce(nullif(min(o.txid), 1), 0) FROM tidegauge.batch o WHERE o.pipeline = p.name)"
)
BATCH = ledger_sql(
    COLUMNS,
    sql.SQL("LEFT JOIN tidegauge.batch b ON b.pipeline = p.name AND b.txid = %s"),
).as_bytes()


class LedgerBatch(NamedTuple):
    """A batch as the ledger has it. newest: the committed one. open: the next one, if it has begun. oldest: the first
    whose time is known. token: of the driver that opened it last, "" if unknown."""

    txid: int
    token: str
    attempt: int
    at: datetime | None
    epoch: str
    newest: int
    open: int | None
    oldest: int

    @property
    def shown(self) -> CommittedBatch:
        return CommittedBatch(self.txid, self.attempt, self.at, self.epoch)

    @property
    def published(self) -> Published:
        return Published(self.txid, attempt_name(self.token, self.attempt) if self.token else "")


class ShownBatch:
    """Reads of one state at the batch that its store shows."""

    def __init__(self, spec: StateSpec) -> None:
        self._spec = spec

    def versions(
        self, keys: Sequence[Key], at_txid: int | None
    ) -> ReadSteps[tuple[LedgerBatch, Sequence[CommittedRow]]]:
        """Return what the store shows of keys, and of which batch. Raises what `published` and `check_then` do."""
        if at_txid is not None:
            yield from self.check_then(at_txid)
        published, rows = yield ShownRows(keys)
        batch = yield from self.published(published, at_txid)
        return batch, rows

    def pinned(self, at_txid: int | None) -> ReadSteps[Published | None]:
        """Return the batch that a scan must read; None for the one that the store shows. Raises as `check_then`."""
        if at_txid is not None:
            yield from self.check_then(at_txid)
        return None

    def now(self, keys: Sequence[Key] = ()) -> ReadSteps[Published]:
        """Return the batch that readers of these keys see now."""
        return (yield from shown_again())

    def explain(self, moved_on: MovedOnError, at_txid: int | None) -> ReadSteps[MovedOnError]:
        """Return the error of a scan that has failed several times. Raises another one if there is another cause."""
        yield from ()
        return moved_on

    def published(self, published: Published, at_txid: int | None) -> ReadSteps[LedgerBatch]:
        """Return what the ledger has of a batch that the store shows.

        Raises OutOfReachError for another `at_txid`, FindingError if store and ledger disagree, MovedOnError.
        """
        txid = published.txid
        if at_txid is not None and at_txid != txid:
            raise OutOfReachError(self._spec.name, at_txid, txid)
        batch = yield from self._batch(txid)
        yield from self._compare(batch)
        if txid > batch.newest:
            # A batch that comes again stays published until its revert, and the ledger has its next attempt already.
            return batch._replace(attempt=batch.attempt - 1)
        yield from self._compare_attempts(batch, published)
        return batch

    def _compare(self, published: LedgerBatch) -> ReadSteps[None]:
        """Raise FindingError if the store shows a batch that the ledger lacks, or has lost batches.

        A batch is published only after its commit, and before the next batch is committed. So the store may be one
        batch behind. It may be one ahead only while a batch that comes again is open and not reverted yet.
        """
        txid, newest = published.txid, published.newest
        if txid > newest and not txid == newest + 1 == published.open:
            raise findings.ahead(self._spec, txid, newest)
        if txid < newest - 1:
            # Look again, because batches may have been published since the store was read.
            now = yield from shown_again()
            if now.txid < newest - 1:
                raise findings.behind(self._spec, now.txid, newest)

    def _compare_attempts(self, batch: LedgerBatch, published: Published) -> ReadSteps[None]:
        """Raise FindingError if the store shows another attempt than the ledger has committed.

        Raises MovedOnError if the batch has come again since the store was read. The ledger commits it again only after
        the store has reverted the previous attempt. So a store that still shows that one has gone back.
        """
        if not (batch.token and published.by) or published.by == attempt_name(batch.token, batch.attempt):
            return
        now = yield from shown_again()
        if now == published:
            raise findings.other_attempt(self._spec, batch.txid)
        raise MovedOnError(f"state {self._spec.name!r}: batch {batch.txid} came again while it was read; read again")

    def check_then(self, txid: int) -> ReadSteps[LedgerBatch]:
        """Return a batch. Raises NotCommittedError or OutOfReachError if the ledger does not have it."""
        batch = yield from self._batch(txid)
        if txid > batch.newest:
            raise NotCommittedError(self._spec.name, txid, batch.newest)
        if txid < batch.oldest:
            raise OutOfReachError(self._spec.name, txid, batch.oldest)
        return batch

    def _batch(self, txid: int) -> ReadSteps[LedgerBatch]:
        row = yield LedgerRow(BATCH, [txid, self._spec.name])
        if row is None:
            raise self._unknown()
        return LedgerBatch(txid, *row)

    def _unknown(self) -> UnknownStateError:
        return UnknownStateError(f"state {self._spec.name!r} is not registered with any pipeline")


def shown_again() -> ReadSteps[Published]:
    """Return the batch that the store shows now."""
    published, _ = yield ShownRows([])
    return cast(Published, published)
