"""What the steps of one micro-batch know of it, on the driver and on executors."""

from dataclasses import dataclass
from datetime import datetime

from state_backends.journal.ledger import Batch
from state_backends.spec import StateSpec
from state_backends.table import StateTable


@dataclass(frozen=True)
class BatchContext:
    """One attempt at a batch, and how it sees the world.

    dsn: where the database is. own: the states that the pipeline feeds itself. shadow: they are fed anew, out of sight.
    writers: how many connections its tasks may hold at once.
    late_before: the watermark that earlier batches have brought, at which this batch's tuples are late.
    watermark: the one that counts this batch's tuples too.
    """

    batch: Batch
    dsn: str
    own: frozenset[str] = frozenset()
    shadow: bool = False
    writers: int = 1
    late_before: datetime | None = None
    watermark: datetime | None = None

    def table(self, spec: StateSpec) -> StateTable:
        """Return where a state of the pipeline's own is kept."""
        table = StateTable(spec)
        return table.shadow() if self.shadow else table
