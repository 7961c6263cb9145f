"""Reprocess: feed a pipeline's states from the start of the input in shadow tables, then swap them in.

Runs through the input there is until it has caught up, with a checkpoint of its own, so it may be stopped and goes on
where it was. The driver of the pipeline may go on meanwhile; the swap overtakes it.
"""

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from pyspark.sql import SparkSession

from pipelines.checkpoint import remove_shadow_checkpoint, settle, shadow_checkpoint
from pipelines.connections import connect
from pipelines.driver import Driver, RunOptions
from pipelines.driver_session import PATIENCE_MS, DriverSession
from pipelines.errors import PipelineError
from pipelines.pipeline import Pipeline
from pipelines.query import OnBatch
from state_backends.ledger import Batch, BatchLedger
from state_backends.protocols import BACKENDS
from state_backends.schema.catalog import Catalog
from state_backends.schema.reprocess import Phase, newest
from state_backends.schema.swap import Swap, shadow_name

# A pass over what has landed since the last one that takes no longer has caught up; the rest is the next driver's.
CAUGHT_UP_SECONDS = 10.0

# For the driver that was overtaken to see it and end, which takes it a batch and half a second.
HANDOVER_PATIENCE_MS = 120_000


class ShadowSession(DriverSession):
    """The session of a driver that feeds the shadow of a pipeline."""

    shadow = True

    @staticmethod
    def ledger_name(pipeline: Pipeline) -> str:
        return shadow_name(pipeline.name)

    def _take_over(self) -> None:
        self._acquire()


@dataclass
class Reprocess:
    """Feeds the shadow of a pipeline's states and swaps it in.

    checkpoint: Spark's folder for the pipeline; the shadow's is beside it. on_batch: called with each batch it commits.
    Raises PipelineError for a pipeline that writes stores of the user's own, or states in Redis: they have no shadow.
    """

    pipeline: Pipeline
    spark: SparkSession
    dsn: str
    checkpoint: Path
    on_batch: OnBatch = lambda batch: None
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        for spec in self.pipeline.specs:
            if not BACKENDS[spec.backend].capabilities.shadow:
                raise PipelineError(
                    f"pipeline {self.pipeline.name!r}: state {spec.name!r} lives in {spec.backend}, which cannot be "
                    "fed again beside the one that is served; declare it in postgres, or feed it under another name, "
                    "from a pipeline of its own"
                )
        if self.pipeline.stores:
            raise PipelineError(
                f"pipeline {self.pipeline.name!r}: writes a store of its own, which would be written twice; feed that "
                "from a pipeline of its own, and reprocess this one without it"
            )

    def run(self) -> bool:
        """Feed the shadow until it has caught up, and swap. Returns False where it was stopped before.

        Raises what a driver raises; the shadow stays as it is, to go on with or to abort.
        """
        with connect(self.dsn, f"{self.pipeline.name} reprocess") as conn:
            Catalog(conn).install()
            swap = Swap(conn, self.pipeline.name)
            with swap.owning(self.pipeline.specs):
                self._begin(conn, swap)
                while not self.stopping.is_set():
                    began = time.monotonic()
                    batches = self._pass()
                    if not self.stopping.is_set() and (batches <= 1 or time.monotonic() - began < CAUGHT_UP_SECONDS):
                        self._swap(conn, swap)
                        return True
        return False

    def _begin(self, conn: psycopg.Connection, swap: Swap) -> None:
        """Create the shadow, or go on with the one there is."""
        catalog, pipeline = Catalog(conn), self.pipeline
        spout, description = pipeline.source.spout, pipeline.description
        catalog.register_pipeline(pipeline.name, spout=spout, description=description)
        self._settle_former(conn)
        with BatchLedger(conn, swap.name).idle(patience_ms=PATIENCE_MS):
            if not swap.exists:
                # What one left that was aborted; Spark would take it for the beginning of this one.
                remove_shadow_checkpoint(self.checkpoint, BatchLedger(conn, pipeline.name).checkpoint_id())
            swap.begin(pipeline.specs, spout=spout, description=description, checkpoint=str(self.checkpoint.absolute()))

    def _settle_former(self, conn: psycopg.Connection) -> None:
        """Finish the reprocess before this one, whose checkpoint may be where this one's belongs."""
        former = newest(conn, self.pipeline.name)
        if former is not None and former.phase == Phase.SWAPPED:
            self._settle(conn)

    def _pass(self) -> int:
        """Run through the input there is; return the number of batches."""
        batches = 0

        def note(batch: Batch) -> None:
            nonlocal batches
            batches += 1
            self.on_batch(batch)

        options = RunOptions(shadow_checkpoint(self.checkpoint), once=True)
        Driver(self.pipeline, self.spark, self.dsn, options, note, self.stopping, ShadowSession).run()
        return batches

    def _swap(self, conn: psycopg.Connection, swap: Swap) -> None:
        # No driver may feed the shadow while it moves.
        with BatchLedger(conn, swap.name).idle(patience_ms=PATIENCE_MS):
            swap.swap(self.pipeline.specs, self.pipeline.guarantees)
        self._settle(conn)

    def _settle(self, conn: psycopg.Connection) -> None:
        with BatchLedger(conn, self.pipeline.name).idle(patience_ms=HANDOVER_PATIENCE_MS):
            settle(conn, self.pipeline.name, self.checkpoint)


def abort(pipeline: str, dsn: str, checkpoint: Path) -> None:
    """Give a reprocess up: its tables, its ledger and its checkpoint go.

    Raises PipelineHeldError while it runs, SwapError once it has replaced the states and has not moved its checkpoint.
    """
    with (
        connect(dsn, f"{pipeline} abort") as conn,
        # Patient with the session of a reprocess that has ended a moment ago.
        BatchLedger(conn, shadow_name(pipeline)).idle(patience_ms=PATIENCE_MS),
    ):
        Swap(conn, pipeline).abort()
        remove_shadow_checkpoint(checkpoint, BatchLedger(conn, pipeline).checkpoint_id())
