"""Reprocess: feed a pipeline's states from the start of the input in shadow tables, then swap them in.

Reads the available input until it has caught up. It has a separate checkpoint, so it may be stopped, and the next run
continues. The driver of the pipeline may run at the same time, until the swap raises its fence.
"""

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

import psycopg
from pyspark.sql import SparkSession

from tidegauge.pipelines.checkpoint.files import CheckpointPath, checkpoint_folder
from tidegauge.pipelines.checkpoint.folder import (
    checkpoint_id,
    kept_checkpoint,
    remove_shadow_checkpoint,
    settle,
    shadow_checkpoint,
)
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.driver.query import OnBatch
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.pipelines.driver.session import PATIENCE_MS, DriverSession
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.reprocess_changes import check_changes, ended_keys, late_events
from tidegauge.state_backends.errors import RollBackError, ShorterInputError
from tidegauge.state_backends.ledger.backfill import BackfillRecord, backfill_of
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.counted import CountedInput
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.reprocess import AFTER_MOVE, Phase, accept, current
from tidegauge.state_backends.schema.swap import Swap, shadow_name

# If a pass over the input since the previous pass takes less time, the shadow has caught up; the next driver reads the
# rest.
CAUGHT_UP_SECONDS = 10.0

# A day to notice that the new states are wrong. It needs no more disk than the feeding, which has both on disk as well.
KEEP_OLD = timedelta(days=1)

# How long to wait for the driver with the old fence to notice it and end, which takes up to a batch and half a second.
HANDOVER_PATIENCE_MS = 120_000


class ShadowSession(DriverSession):
    """The session of a driver that feeds the shadow of a pipeline."""

    shadow = True

    @staticmethod
    def ledger_name(pipeline: Pipeline) -> str:
        return shadow_name(pipeline.name)

    def _take_over(self) -> None:
        # The pipeline and its states are not registered here, because Swap.begin has done so under the shadow's name.
        self._acquire()


def check_shadows(pipeline: Pipeline) -> None:
    """Raise PipelineError if a pipeline writes the user's own stores, or states in a backend without shadow tables."""
    for spec in pipeline.specs:
        if BACKENDS[spec.backend].tables is None:
            raise PipelineError(
                f"pipeline {pipeline.name!r}: state {spec.name!r} lives in {spec.backend}, which cannot be fed again "
                "while it is served; declare it in postgres, or feed it under another name from a separate pipeline"
            )
    if pipeline.stores:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: writes a store of its own, which would be written twice; feed that store "
            "from a separate pipeline, and reprocess this one without it"
        )


@dataclass
class Reprocess:
    """Feeds the shadow of a pipeline's states and swaps it in.

    checkpoint: Spark's folder for the pipeline; the shadow's is beside it. on_batch: called with each committed batch.
    keep_old: how long the replaced states are kept so that `roll_back` can restore them; zero drops them at once.
    accept_shorter: swap in states even if they have counted less than those they replace. accept_changes: swap in
    states even if their results differ because they depend on when a batch runs.
    Raises PipelineError (see check_shadows).
    """

    pipeline: Pipeline
    spark: SparkSession
    dsn: str
    checkpoint: CheckpointPath
    on_batch: OnBatch = lambda batch: None
    stopping: threading.Event = field(default_factory=threading.Event)
    keep_old: timedelta = KEEP_OLD
    accept_shorter: bool = False
    accept_changes: bool = False

    def __post_init__(self) -> None:
        self.checkpoint = checkpoint_folder(self.checkpoint)
        check_shadows(self.pipeline)

    def run(self) -> bool:
        """Feed the shadow until it has caught up, and swap. Returns False if it was stopped before that.

        Raises what a driver raises; the shadow is kept, and the reprocess can be continued or aborted.
        """
        with connect(self.dsn, f"{self.pipeline.name} reprocess") as conn:
            Catalog(conn).install()
            swap = Swap(conn, self.pipeline.name)
            with swap.owning(self.pipeline.specs):
                self._begin(conn, swap)
                while not self.stopping.is_set():
                    began = time.monotonic()
                    # Taken before the pass: a pass reads all input available at its start, so also all counted by then.
                    counted = CountedInput(conn, self.pipeline.name)
                    batches = self._pass()
                    if not self.stopping.is_set() and (batches <= 1 or time.monotonic() - began < CAUGHT_UP_SECONDS):
                        self._swap(conn, swap, counted)
                        return True
        return False

    def _begin(self, conn: psycopg.Connection, swap: Swap) -> None:
        """Create the shadow, or continue with the existing one."""
        catalog, pipeline = Catalog(conn), self.pipeline
        spout, description = pipeline.source.spout, pipeline.description
        catalog.register_pipeline(pipeline.name, spout=spout, description=description)
        settle_former(conn, pipeline.name, self.checkpoint)
        with BatchLedger(conn, swap.name).idle(patience_ms=PATIENCE_MS):
            if not swap.exists:
                self._check_sources(conn)
                changes = ended_keys(conn, pipeline.specs)
                check_changes(pipeline.name, changes, "leave the states as they are", accepted=self.accept_changes)
                # An aborted reprocess may have left its checkpoint, which Spark would resume from.
                remove_shadow_checkpoint(self.checkpoint, BatchLedger(conn, pipeline.name).checkpoint_id())
            swap.begin(pipeline.specs, spout=spout, description=description, checkpoint=str(self.checkpoint.absolute()))

    def _pass(self) -> int:
        """Read the input that is available now; return the number of batches."""
        options = RunOptions(shadow_checkpoint(self.checkpoint), once=True)
        driver = Driver(self.pipeline, self.spark, self.dsn, options, self.on_batch, self.stopping, ShadowSession)
        driver.run()
        return driver.commits

    def _check_sources(self, conn: psycopg.Connection) -> None:
        """Raise ShorterInputError if a source knows that it has less than was counted, before hours of work begin."""
        if (history := backfill_of(conn, self.pipeline.name)) is not None:
            self._check_history(history)
            return
        counted = CountedInput(conn, self.pipeline.name)
        missing = self.pipeline.source.missing(self.spark, counted) if counted.is_any else []
        if missing and not self.accept_shorter:
            raise ShorterInputError(
                f"pipeline {self.pipeline.name!r}: a reprocess would count less than the states have counted: "
                f"{'; '.join(missing)}; bring the input back, or run with --reprocess --accept-shorter to do without it"
            )

    def _check_history(self, history: BackfillRecord) -> None:
        if not self.accept_shorter:
            raise ShorterInputError(
                f"pipeline {self.pipeline.name!r}: its history was backfilled from {history.source!r}, which a "
                f"reprocess does not read; retire it (`tidegauge retire --pipeline {self.pipeline.name} --drop`) and "
                "backfill it again, or run with --reprocess --accept-shorter to do without the history"
            )

    def _check_counted(self, conn: psycopg.Connection, swap: Swap, counted: CountedInput) -> None:
        """Raise ShorterInputError if the shadow lacks input that had been counted when the last pass began."""
        missing = counted.shortfall(swap.name)
        if missing and not self.accept_shorter:
            raise ShorterInputError(
                f"pipeline {self.pipeline.name!r}: its reprocess has counted less than the states it would replace: "
                f"{'; '.join(missing)}; they stay as they are: swap it in all the same with --reprocess "
                "--accept-shorter, or drop it with --abort-reprocess"
            )
        accept(conn, self.pipeline.name, "; ".join(missing))
        way_out = "drop it with --abort-reprocess"
        changes = late_events(counted, CountedInput(conn, swap.name))
        check_changes(self.pipeline.name, changes, way_out, accepted=self.accept_changes)

    def _swap(self, conn: psycopg.Connection, swap: Swap, counted: CountedInput) -> None:
        self._check_counted(conn, swap, counted)
        # Holds the shadow's ledger, because no driver may feed the shadow during the swap.
        with BatchLedger(conn, swap.name).idle(patience_ms=PATIENCE_MS):
            swap.swap(self.pipeline.specs, self.pipeline.guarantees, keep_old=self.keep_old)
        _settle(conn, self.pipeline.name, self.checkpoint)


def settle_former(conn: psycopg.Connection, pipeline: str, checkpoint: CheckpointPath) -> None:
    """Finish the previous reprocess, whose checkpoint may still be in the folder that this one needs."""
    former = current(conn, pipeline)
    if former is not None and former.phase in AFTER_MOVE:
        _settle(conn, pipeline, checkpoint)


def _settle(conn: psycopg.Connection, pipeline: str, checkpoint: CheckpointPath) -> None:
    with BatchLedger(conn, pipeline).idle(patience_ms=HANDOVER_PATIENCE_MS):
        settle(conn, pipeline, checkpoint)


def abort(pipeline: str, dsn: str, checkpoint: CheckpointPath) -> None:
    """Abort a reprocess: drop its tables, its ledger and its checkpoint.

    Raises PipelineHeldError while it runs, and SwapError if it has swapped the states but not yet moved its checkpoint.
    """
    with (
        connect(dsn, f"{pipeline} abort") as conn,
        # Waits a little, because the session of a reprocess that has just ended may still hold the lock.
        BatchLedger(conn, shadow_name(pipeline)).idle(patience_ms=PATIENCE_MS),
    ):
        Swap(conn, pipeline).abort()
        remove_shadow_checkpoint(checkpoint, BatchLedger(conn, pipeline).checkpoint_id())


def roll_back(pipeline: str, dsn: str, checkpoint: CheckpointPath) -> None:
    """Restore the states that the last reprocess has replaced, with their ledger and checkpoint.

    They continue reading the source where they stopped, with their old declarations. After a crash, the next call or
    the next driver finishes the roll-back. Raises PipelineHeldError while a driver runs, RollBackError, StateBusyError.
    """
    with connect(dsn, f"{pipeline} roll-back") as conn, BatchLedger(conn, pipeline).idle(patience_ms=PATIENCE_MS):
        record = current(conn, pipeline)
        if record is None or record.phase != Phase.ROLLING_BACK:
            settle(conn, pipeline, checkpoint)
            _put_back(conn, pipeline, checkpoint)
        settle(conn, pipeline, checkpoint)


def _put_back(conn: psycopg.Connection, pipeline: str, checkpoint: CheckpointPath) -> None:
    kept = Kept(conn, pipeline)
    kept.check()
    folder, wanted = kept_checkpoint(checkpoint), kept.checkpoint_id()
    if wanted is not None and checkpoint_id(folder) != wanted:
        raise RollBackError(
            f"pipeline {pipeline!r}: the checkpoint of the states that were replaced is not in {str(folder)!r}; pass "
            "the reprocess's folder with --checkpoint, or restore the checkpoint"
        )
    kept.roll_back()
