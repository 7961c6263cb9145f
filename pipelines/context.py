"""What the steps of one micro-batch know of it, on the driver and on executors."""

from dataclasses import dataclass, replace
from datetime import datetime

from state_backends.ledger import Batch
from state_backends.spec import StateSpec
from state_backends.table import StateTable


@dataclass(frozen=True)
class BatchContext:
    """One attempt at a batch, and how it sees the world.

    dsn: where the database is. own: the states that the pipeline feeds itself. shadow: they are fed anew, out of sight.
    logged: those of them that keep a changelog; None for those that are declared with one.
    writers: how many connections its tasks may hold at once.
    late_before: the watermark that earlier batches have brought, at which this batch's tuples are late.
    watermark: the one that counts this batch's tuples too.
    """

    batch: Batch
    dsn: str
    own: frozenset[str] = frozenset()
    shadow: bool = False
    logged: frozenset[str] | None = None
    writers: int = 1
    late_before: datetime | None = None
    watermark: datetime | None = None

    def in_force(self, spec: StateSpec) -> StateSpec:
        """Return a state's declaration with what people have set upon it, as this batch goes by it."""
        logged = spec.changelog if self.logged is None or spec.name not in self.own else spec.name in self.logged
        return replace(spec, ttl=self.batch.ttls.get(spec.name, spec.ttl), changelog=logged)

    def table(self, spec: StateSpec) -> StateTable:
        """Return where a state of the pipeline's own is kept."""
        table = StateTable(spec)
        return table.shadow() if self.shadow else table
