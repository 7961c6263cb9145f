"""Reprocess: feed a pipeline's states from the start of the input in shadow tables, then swap them in.

Runs through the input there is until it has caught up, with a checkpoint of its own, so it may be stopped and goes on
where it was. The driver of the pipeline may go on meanwhile; the swap overtakes it.
"""

import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.checkpoint import promote, shadow_checkpoint
from pipelines.connections import connect
from pipelines.driver import Driver, RunOptions
from pipelines.driver_session import PATIENCE_MS, DriverSession
from pipelines.errors import PipelineError
from pipelines.pipeline import Pipeline
from pipelines.query import OnBatch
from state_backends.ledger import Batch, BatchLedger
from state_backends.protocols import BACKENDS
from state_backends.schema.catalog import Catalog
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
        catalog, pipeline = Catalog(self.conn), self.pipeline
        spout = pipeline.source.spout
        catalog.register_pipeline(pipeline.name, spout=spout, description=pipeline.description)
        swap = Swap(self.conn, pipeline.name)
        swap.begin(pipeline.specs, spout=spout, description=pipeline.description)
        self.ledger.acquire(patience_ms=PATIENCE_MS)


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
        while not self.stopping.is_set():
            began = time.monotonic()
            batches = self._pass()
            if not self.stopping.is_set() and (batches <= 1 or time.monotonic() - began < CAUGHT_UP_SECONDS):
                self._swap()
                return True
        return False

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

    def _swap(self) -> None:
        name = self.pipeline.name
        with connect(self.dsn, f"{name} swap") as conn:
            # No driver may feed the shadow while it moves.
            with BatchLedger(conn, shadow_name(name)).idle(patience_ms=PATIENCE_MS):
                Swap(conn, name).swap(self.pipeline.specs, self.pipeline.guarantees)
            with BatchLedger(conn, name).idle(patience_ms=HANDOVER_PATIENCE_MS):
                promote(self.checkpoint, BatchLedger(conn, name).checkpoint_id())


def abort(pipeline: str, dsn: str, checkpoint: Path) -> None:
    """Give a reprocess up: its tables, its ledger and its checkpoint go. Raises PipelineHeldError while it runs."""
    with (
        connect(dsn, f"{pipeline} abort") as conn,
        # Patient with the session of a reprocess that has ended a moment ago.
        BatchLedger(conn, shadow_name(pipeline)).idle(patience_ms=PATIENCE_MS),
    ):
        Swap(conn, pipeline).abort()
        shutil.rmtree(shadow_checkpoint(checkpoint), ignore_errors=True)
