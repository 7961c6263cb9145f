"""Partial reprocess: feed some states of a pipeline again from the start of the input; the others are left unchanged.

The states of a pipeline share its ledger and its checkpoint, and its committed batch n may be replayed and reverted in
all of them. Therefore the shadow does not read all available input. It reads what the ledger says was counted, exactly
up to batch n, and batch n is a batch of the shadow with the same txid:

    input of batches 1 .. n - 1    one batch of the shadow, as txid n - 1, or several if there are many rows
    input of batch n               one batch of the shadow, as txid n

If batches have left out late events, each of the pipeline's batches is a batch of the shadow, because the watermark
after the previous batch decides which events are late.

Each batch is planned by writing the shadow's checkpoint: Spark runs a batch that is planned and not done, and ends. The
driver may continue until the shadow has nearly caught up. Then its fence is raised, and the pipeline stops for the last
batches. An interrupted partial reprocess starts again from the beginning.
"""

import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from uuid import uuid4

import psycopg
from pyspark.sql import SparkSession

from tidegauge.pipelines.checkpoint.files import CheckpointPath, checkpoint_folder, remove
from tidegauge.pipelines.checkpoint.folder import remove_shadow_checkpoint, shadow_checkpoint
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.driver import Driver
from tidegauge.pipelines.driver.query import OnBatch
from tidegauge.pipelines.driver.run_options import RunOptions
from tidegauge.pipelines.driver.session import PATIENCE_MS
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.repair.checkpoint_writer import write_checkpoint
from tidegauge.pipelines.repair.reprocess import (
    CAUGHT_UP_SECONDS,
    HANDOVER_PATIENCE_MS,
    ShadowSession,
    check_shadows,
    settle_former,
)
from tidegauge.pipelines.repair.reprocess_changes import check_changes, ended_keys, late_events
from tidegauge.pipelines.sources.source import Source, listed_files
from tidegauge.state_backends.errors import ShorterInputError
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.repair.resume import ResumePoint, committed_range, resume_point, steps
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.counted import CountedInput
from tidegauge.state_backends.schema.partial_swap import PartialSwap

# The least number of rows in a batch of the shadow: fewer batches are faster, but one batch of all may be too large.
STEP_ROWS = 5_000_000


@dataclass
class PartialReprocess:
    """Feeds the shadows of some states of a pipeline, and swaps them in.

    states: their names. If one of them reads the new values of another state, that state is fed again as well.
    accept_changes: swap in states even if their results differ because they depend on when a batch runs.
    checkpoint: Spark's folder of the pipeline; the shadow's is beside it. on_batch: called with each committed batch.
    Raises PipelineError for a name that the pipeline does not feed, and for states that have no shadow.
    """

    pipeline: Pipeline
    states: Collection[str]
    spark: SparkSession
    dsn: str
    checkpoint: CheckpointPath
    on_batch: OnBatch = lambda batch: None
    stopping: threading.Event = field(default_factory=threading.Event)
    accept_changes: bool = False

    def __post_init__(self) -> None:
        self.checkpoint = checkpoint_folder(self.checkpoint)
        known = [fed.name for fed in self.pipeline.ordered]
        if unknown := sorted(set(self.states) - set(known)):
            raise PipelineError(
                f"pipeline {self.pipeline.name!r}: does not feed {', '.join(map(repr, unknown))}; it feeds "
                f"{', '.join(known)}"
            )
        check_shadows(self.part)

    @cached_property
    def part(self) -> Pipeline:
        """The pipeline with only these states."""
        return Pipeline(self.pipeline.name, [fed for fed in self.pipeline.ordered if fed.name in self.states])

    def run(self) -> bool:
        """Feed the shadow up to the pipeline's committed batch, and swap. Returns False if it was stopped before that.

        Raises what a driver raises; ShorterInputError if a source lacks input that was counted, ResumeError if the
        ledger does not say which input was counted, ChangedResultError if the new states would differ for another
        reason than their declarations. On an error the served states are unchanged.
        """
        with connect(self.dsn, f"{self.pipeline.name} reprocess") as conn:
            Catalog(conn).install()
            swap = PartialSwap(conn, self.pipeline.name)
            with swap.owning(self.part.specs):
                self._begin(conn, swap)
                while not self.stopping.is_set() and not self._catch_up(conn, swap):
                    pass
                if self.stopping.is_set():
                    return False
                with self._overtaken(conn, swap):
                    self._catch_up(conn, swap)
                    if self.stopping.is_set():
                        return False
                    self._check_late(conn, swap)
                    swap.swap(self.part.specs, self.part.guarantees)
        remove_shadow_checkpoint(self.checkpoint, None)
        return True

    def _begin(self, conn: psycopg.Connection, swap: PartialSwap) -> None:
        """Create the shadow, and drop the one of an interrupted partial reprocess."""
        settle_former(conn, self.pipeline.name, self.checkpoint)
        first, last = committed_range(conn, self.pipeline.name)
        if last < first:
            raise PipelineError(f"pipeline {self.pipeline.name!r}: has committed no batch that can be reprocessed")
        with BatchLedger(conn, swap.name).idle(patience_ms=PATIENCE_MS):
            if swap.exists:
                # Raises SpecMismatchError if the shadow has other states, so that another reprocess is never dropped.
                self._begin_shadow(swap)
                swap.abort()
            counted = CountedInput(conn, self.pipeline.name)
            self._check_sources(counted)
            self._check_changes([*ended_keys(conn, self.part.specs), *self._other_watermark(counted)])
            self._begin_shadow(swap)

    def _begin_shadow(self, swap: PartialSwap) -> None:
        folder = str(self.checkpoint.absolute())
        swap.begin(self.part.specs, spout=self.part.source.spout, checkpoint=folder)

    def _check_sources(self, counted: CountedInput) -> None:
        """Raise ShorterInputError if a source knows that it has less than was counted, before hours of work begin."""
        found = (source.missing(self.spark, counted.of(place)) for place, source in self._sources)
        if missing := [each for each in found if each]:
            raise ShorterInputError(
                f"pipeline {self.pipeline.name!r}: its states were fed input that its sources no longer have: "
                f"{'; '.join(missing)}; bring the input back, or reprocess all of its states with --reprocess "
                "--accept-shorter"
            )

    def _other_watermark(self, counted: CountedInput) -> Iterator[str]:
        """Report if the watermark that decided which events are late would be another one for these states."""
        is_other = set(self.part.watermarked) != set(self.pipeline.watermarked)
        if self._leaves_out(counted) and (is_other or any(each.idle_after for each in self.part.watermarks)):
            yield (
                f"{counted.dropped} late events were left out because of a watermark that other streams or the time of "
                "the batches had advanced, and these states may count some of them"
            )

    def _leaves_out(self, counted: CountedInput) -> bool:
        return bool(self.part.leaving_out) and counted.dropped != 0

    def _check_late(self, conn: psycopg.Connection, swap: PartialSwap) -> None:
        if set(self.part.leaving_out) == set(self.pipeline.leaving_out):
            counted, again = (CountedInput(conn, name) for name in (self.pipeline.name, swap.name))
            self._check_changes(late_events(counted, again))

    def _check_changes(self, changes: Iterable[str]) -> None:
        check_changes(self.pipeline.name, changes, "reprocess the whole pipeline", accepted=self.accept_changes)

    @contextmanager
    def _overtaken(self, conn: psycopg.Connection, swap: PartialSwap) -> Iterator[None]:
        """Stop the pipeline's driver by raising the fence, and hold the pipeline."""
        swap.overtake()
        with BatchLedger(conn, self.pipeline.name).idle(patience_ms=HANDOVER_PATIENCE_MS):
            yield

    def _catch_up(self, conn: psycopg.Connection, swap: PartialSwap) -> bool:
        """Feed the shadow what was committed since its last batch. Returns whether that took little time."""
        began = time.monotonic()
        _, last = committed_range(conn, self.pipeline.name)
        _, fed = committed_range(conn, swap.name)
        rows = 0 if self._leaves_out(CountedInput(conn, self.pipeline.name)) else STEP_ROWS
        for txid in steps(conn, self.pipeline.name, fed, last, rows):
            if not self.stopping.is_set():
                self._step(conn, swap, txid)
        return time.monotonic() - began < CAUGHT_UP_SECONDS

    def _step(self, conn: psycopg.Connection, swap: PartialSwap, txid: int) -> None:
        """Feed the shadow all input that was counted after its last batch, up to and with `txid`, as batch `txid`."""
        folder, point = shadow_checkpoint(self.checkpoint), self._plan(conn, swap, txid)
        # Removed, because write_checkpoint would otherwise keep the one of the previous step beside it.
        remove(folder)
        read = listed_files(conn, self.pipeline.name, txid, self._sources)
        write_checkpoint(folder, point, self.part.sources, read)
        swap.skip_to(txid)
        options = RunOptions(folder, once=True, one_batch=True)
        Driver(self.part, self.spark, self.dsn, options, self.on_batch, self.stopping, ShadowSession).run()

    def _plan(self, conn: psycopg.Connection, swap: PartialSwap, txid: int) -> ResumePoint:
        """Return the point after the shadow's last batch, with the next one planned to end as batch `txid` did."""
        end = resume_point(conn, self.pipeline.name, txid)
        opened = [end.offsets[place] for place, _ in self._sources]
        first, fed = committed_range(conn, swap.name)
        if fed < first:
            nowhere = [None] * len(opened)
            return ResumePoint(swap.name, str(uuid4()), fed, -1, end.batch_time, nowhere, nowhere, opened)
        point = resume_point(conn, swap.name)
        return replace(point.moved(point.offsets), batch_time=end.batch_time, opened=opened)

    @cached_property
    def _sources(self) -> list[tuple[int, Source]]:
        """The sources that the states read, each with its place among the pipeline's."""
        return [(self.pipeline.sources.index(source), source) for source in self.part.sources]
