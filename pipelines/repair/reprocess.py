"""Reprocess: feed a pipeline's states from the start of the input in shadow tables, then swap them in.

Runs through the input there is until it has caught up, with a checkpoint of its own, so it may be stopped and goes on
where it was. The driver of the pipeline may go on meanwhile; the swap overtakes it.
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

# A pass over what has landed since the last one that takes no longer has caught up; the rest is the next driver's.
CAUGHT_UP_SECONDS = 10.0

# A day to find that the new states are wrong. They and the old ones were on disk together while they were fed.
KEEP_OLD = timedelta(days=1)

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


def check_shadows(pipeline: Pipeline) -> None:
    """Raise PipelineError for a pipeline that writes stores of the user's own, or states in Redis, without a shadow."""
    for spec in pipeline.specs:
        if BACKENDS[spec.backend].tables is None:
            raise PipelineError(
                f"pipeline {pipeline.name!r}: state {spec.name!r} lives in {spec.backend}, which cannot be fed again "
                "beside the one that is served; declare it in postgres, or feed it under another name, from a "
                "pipeline of its own"
            )
    if pipeline.stores:
        raise PipelineError(
            f"pipeline {pipeline.name!r}: writes a store of its own, which would be written twice; feed that from a "
            "pipeline of its own, and reprocess this one without it"
        )


@dataclass
class Reprocess:
    """Feeds the shadow of a pipeline's states and swaps it in.

    checkpoint: Spark's folder for the pipeline; the shadow's is beside it. on_batch: called with each batch it commits.
    keep_old: how long the states that it replaces are kept, to be put back by `roll_back`; zero drops them at once.
    accept_shorter: swap in states that have counted less than those they replace. accept_changes: or that differ from
    them by what depends on when a batch runs.
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
                    # A pass reads what is there as it begins, and so all that has been counted by then.
                    counted = CountedInput(conn, self.pipeline.name)
                    batches = self._pass()
                    if not self.stopping.is_set() and (batches <= 1 or time.monotonic() - began < CAUGHT_UP_SECONDS):
                        self._swap(conn, swap, counted)
                        return True
        return False

    def _begin(self, conn: psycopg.Connection, swap: Swap) -> None:
        """Create the shadow, or go on with the one there is."""
        catalog, pipeline = Catalog(conn), self.pipeline
        spout, description = pipeline.source.spout, pipeline.description
        catalog.register_pipeline(pipeline.name, spout=spout, description=description)
        settle_former(conn, pipeline.name, self.checkpoint)
        with BatchLedger(conn, swap.name).idle(patience_ms=PATIENCE_MS):
            if not swap.exists:
                self._check_sources(conn)
                changes = ended_keys(conn, pipeline.specs)
                check_changes(pipeline.name, changes, "leave the states as they are", accepted=self.accept_changes)
                # What one left that was aborted; Spark would take it for the beginning of this one.
                remove_shadow_checkpoint(self.checkpoint, BatchLedger(conn, pipeline.name).checkpoint_id())
            swap.begin(pipeline.specs, spout=spout, description=description, checkpoint=str(self.checkpoint.absolute()))

    def _pass(self) -> int:
        """Run through the input there is; return the number of batches."""
        options = RunOptions(shadow_checkpoint(self.checkpoint), once=True)
        driver = Driver(self.pipeline, self.spark, self.dsn, options, self.on_batch, self.stopping, ShadowSession)
        driver.run()
        return driver.commits

    def _check_sources(self, conn: psycopg.Connection) -> None:
        """Before the hours of work: raise ShorterInputError where a source has less than was counted, and knows it."""
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
        """Raise ShorterInputError where the shadow lacks what had been counted as the last pass began."""
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
        # No driver may feed the shadow while it moves.
        with BatchLedger(conn, swap.name).idle(patience_ms=PATIENCE_MS):
            swap.swap(self.pipeline.specs, self.pipeline.guarantees, keep_old=self.keep_old)
        _settle(conn, self.pipeline.name, self.checkpoint)


def settle_former(conn: psycopg.Connection, pipeline: str, checkpoint: CheckpointPath) -> None:
    """Finish the reprocess before this one, whose checkpoint may be where this one's belongs."""
    former = current(conn, pipeline)
    if former is not None and former.phase in AFTER_MOVE:
        _settle(conn, pipeline, checkpoint)


def _settle(conn: psycopg.Connection, pipeline: str, checkpoint: CheckpointPath) -> None:
    with BatchLedger(conn, pipeline).idle(patience_ms=HANDOVER_PATIENCE_MS):
        settle(conn, pipeline, checkpoint)


def abort(pipeline: str, dsn: str, checkpoint: CheckpointPath) -> None:
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


def roll_back(pipeline: str, dsn: str, checkpoint: CheckpointPath) -> None:
    """Put the states back that the last reprocess has replaced, with their ledger and checkpoint.

    The source is read on from where they stopped, by their old declarations. After a crash, the next
    call or the next driver finishes it. Raises PipelineHeldError while a driver runs, RollBackError, StateBusyError.
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
            f"pipeline {pipeline!r}: the checkpoint of the states that were replaced is not in {str(folder)!r}; give "
            "the folder that the reprocess was given, with --checkpoint, or restore it"
        )
    kept.roll_back()
