"""What the steps of one micro-batch know of it, on the driver and on executors."""

from dataclasses import dataclass
from datetime import datetime

from state_backends.journal.ledger import Batch


@dataclass(frozen=True)
class BatchContext:
    """One attempt at a batch, and how it sees the world.

    dsn: where the database is. own: the states that the pipeline feeds itself.
    late_before: the watermark that earlier batches have brought, at which this batch's tuples are late.
    watermark: the one that counts this batch's tuples too.
    """

    batch: Batch
    dsn: str
    own: frozenset[str] = frozenset()
    late_before: datetime | None = None
    watermark: datetime | None = None
