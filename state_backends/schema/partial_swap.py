"""Partial swap: some states of a pipeline are fed again, up to its committed batch and under its txids, and swapped in.

The ledger of the pipeline and its other states stay as they are. The shadow has every row as of the pipeline's
committed batch, with the version before it, so that this batch can come again, and can be reverted, in all states.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from tidegauge.state_backends.dead_letters.replay import COUNTED_AGAIN
from tidegauge.state_backends.errors import SwapError
from tidegauge.state_backends.ledger.batch_ledger import notify
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.state_backends.schema import reprocess
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.reprocess import Phase
from tidegauge.state_backends.schema.swap import Swap
from tidegauge.state_backends.schema.table_locks import TableLocks
from tidegauge.state_backends.spec.state_spec import StateSpec


class PartialSwap(Swap):
    """The shadow of some of a pipeline's states. Its txids begin where those of the pipeline's present states do.

    The replaced states are not kept, because they would lack what the others have counted since. States kept by an
    earlier reprocess are dropped.
    """

    def skip_to(self, txid: int) -> None:
        """Number the shadow's next batch `txid`. The record of its last batch, with the watermarks, moves before it."""
        names = {"name": self.name, "last": txid - 1}
        with self._conn.transaction():
            self._conn.execute(
                "UPDATE tidegauge.batch b SET txid = %(last)s FROM tidegauge.pipeline p "
                "WHERE p.name = %(name)s AND b.pipeline = p.name AND b.txid = p.committed_txid",
                names,
            )
            self._conn.execute("UPDATE tidegauge.pipeline SET committed_txid = %(last)s WHERE name = %(name)s", names)

    def overtake(self) -> None:
        """Raise the pipeline's fence, so that its driver ends and the writes that it has in flight are refused."""
        self._conn.execute("UPDATE tidegauge.pipeline SET fence = fence + 1 WHERE name = %s", [self.pipeline])

    def _register(self, spout: str, description: str) -> None:
        self._conn.execute(
            "INSERT INTO tidegauge.pipeline (name, spout, description, reprocesses, committed_txid, committed_time, "
            "fed_after) SELECT %s, %s, %s, p.name, p.fed_after, p.committed_time, p.fed_after "
            "FROM tidegauge.pipeline p WHERE p.name = %s",
            [self.name, spout, description, self.pipeline],
        )

    def _overtaken(self, specs: Sequence[StateSpec]) -> list[StateSpec]:
        return []  # the ledger stays, so the other states may live anywhere

    def _swap(
        self, specs: Sequence[StateSpec], guarantees: Mapping[str, str], locks: TableLocks, keep_old: timedelta
    ) -> None:
        """Put the shadows in place. The caller has overtaken the driver and holds the pipeline.

        It makes a new epoch, because a txid that a reader has seen now stands for other rows of these states.
        Raises SwapError unless the shadow is at the pipeline's committed batch.
        """
        self._check_position()
        locks.take()
        Kept(self._conn, self.pipeline).drop()
        for declared in sorted(specs, key=lambda spec: spec.name):
            self._replace(declared, guarantees[declared.name], keep=False)
        states = [spec.name for spec in specs]
        for statement in HAND_OVER:
            self._conn.execute(statement, {"old": self.pipeline, "new": self.name, "states": states})
        # Both phases at once, because there is no checkpoint to move.
        reprocess.enter(self._conn, self.pipeline, Phase.FEEDING, Phase.SWAPPED)
        reprocess.enter(self._conn, self.pipeline, Phase.SWAPPED, Phase.SETTLED)
        new_epoch(self._conn, f"reprocessed {', '.join(states)} of pipeline {self.pipeline!r}", self.pipeline)
        notify(self._conn, self.pipeline)

    def _check_position(self) -> None:
        rows = self._conn.execute(
            "SELECT committed_txid, reprocesses IS NOT NULL AND open_txid IS NOT NULL FROM tidegauge.pipeline "
            "WHERE name = ANY(%s) ORDER BY reprocesses NULLS FIRST FOR UPDATE",
            [[self.pipeline, self.name]],
        ).fetchall()
        if len(rows) != 2 or rows[0][0] != rows[1][0] or rows[1][1]:
            raise SwapError(
                f"pipeline {self.pipeline!r}: it is at batch {rows[0][0] if rows else None}, and the reprocess of some "
                f"of its states is not; start that reprocess again"
            )


# Only dead letters of the states are replaced, because the pipeline already has those of the source.
HAND_OVER = [
    COUNTED_AGAIN,
    "DELETE FROM tidegauge.dead_letter WHERE pipeline = %(old)s AND state = ANY(%(states)s)",
    "UPDATE tidegauge.dead_letter SET pipeline = %(old)s WHERE pipeline = %(new)s AND state = ANY(%(states)s)",
    # As-of reads reach back to these, because the shadow has only the committed batch and the one before it.
    "UPDATE tidegauge.state s SET oldest_txid = greatest(p.fed_after + 1, p.committed_txid - 1) "
    "FROM tidegauge.pipeline p WHERE p.name = %(old)s AND s.name = ANY(%(states)s)",
    "DELETE FROM tidegauge.pipeline WHERE name = %(new)s",
]
