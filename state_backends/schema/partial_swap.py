"""Partial swap: some states of a pipeline are fed again, up to its committed batch and under its txids, and swapped in.

The ledger of the pipeline and its other states stay as they are. The shadow has every row that it would have, as of the
pipeline's committed batch, with the version before it: so that batch may come again, and be reverted in all states.
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

    What it replaces is not kept: states that are put back would lack what the others have counted since. What an
    earlier reprocess has kept goes.
    """

    def skip_to(self, txid: int) -> None:
        """Number the shadow's next batch `txid`; what its last one has left, such as watermarks, is kept before it."""
        names = {"name": self.name, "last": txid - 1}
        with self._conn.transaction():
            self._conn.execute(
                "UPDATE tidegauge.batch b SET txid = %(last)s FROM tidegauge.pipeline p "
                "WHERE p.name = %(name)s AND b.pipeline = p.name AND b.txid = p.committed_txid",
                names,
            )
            self._conn.execute("UPDATE tidegauge.pipeline SET committed_txid = %(last)s WHERE name = %(name)s", names)

    def overtake(self) -> None:
        """Raise the pipeline's fence: its driver ends, and what it has in flight is refused."""
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

        It makes a new epoch: what a reader has of these states as of a txid is of other rows.
        Raises SwapError unless the shadow stands at the pipeline's committed batch.
        """
        self._check_position()
        locks.take()
        Kept(self._conn, self.pipeline).drop()
        for declared in sorted(specs, key=lambda spec: spec.name):
            self._replace(declared, guarantees[declared.name], keep=False)
        states = [spec.name for spec in specs]
        for statement in HAND_OVER:
            self._conn.execute(statement, {"old": self.pipeline, "new": self.name, "states": states})
        # No checkpoint is to be moved.
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
                f"of its states is not; begin that again"
            )


# The source's dead letters are the pipeline's already; those of the states are replaced.
HAND_OVER = [
    COUNTED_AGAIN,
    "DELETE FROM tidegauge.dead_letter WHERE pipeline = %(old)s AND state = ANY(%(states)s)",
    "UPDATE tidegauge.dead_letter SET pipeline = %(old)s WHERE pipeline = %(new)s AND state = ANY(%(states)s)",
    # Of the past, the shadow has the committed batch and the one before.
    "UPDATE tidegauge.state s SET oldest_txid = greatest(p.fed_after + 1, p.committed_txid - 1) "
    "FROM tidegauge.pipeline p WHERE p.name = %(old)s AND s.name = ANY(%(states)s)",
    "DELETE FROM tidegauge.pipeline WHERE name = %(new)s",
]
