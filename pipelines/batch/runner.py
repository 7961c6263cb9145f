"""Batch runner: takes each micro-batch through the ledger: begin, revert if this is a retry, feed, commit."""

import logging
import time
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from pyspark.sql import DataFrame
from structlog.contextvars import bound_contextvars

from tidegauge.pipelines.batch.input import BatchInput
from tidegauge.pipelines.batch.misfits import misfit_letters
from tidegauge.pipelines.batch.rejected import check_rejected
from tidegauge.pipelines.batch.sink import SinkJob, Written, emitted_columns, task_for
from tidegauge.pipelines.batch.sink_plan import SinkPlan
from tidegauge.pipelines.checkpoint.disk import CheckpointDisk
from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.checkpoint.folder import batch_offsets
from tidegauge.pipelines.connections import rounds, writer_limit
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.event_time import EventTime, advance, committed
from tidegauge.pipelines.declare.frames import Frames
from tidegauge.pipelines.declare.idle import IdleTimers
from tidegauge.pipelines.declare.lateness import late_letters
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import PersistentAggregate
from tidegauge.pipelines.spark.session import most_tasks, partitions_of
from tidegauge.state_backends.dead_letters import replay as dead_letter_replay
from tidegauge.state_backends.dead_letters.letters import delete_dead_letters, write_dead_letters
from tidegauge.state_backends.dead_letters.replay import RawLetter
from tidegauge.state_backends.ledger.batch import Batch, lock_fence
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.protocols import BackendSession
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.feeding import take_back_feeding

# If the previous batch had fewer rows, one task reads the batch and writes all states, because shuffles and further
# tasks cost 0.3 s in all. Four states of flights, medians in s, with one task and with two: 10,000 rows 0.51 and 0.87,
# 30,000 0.80 and 1.05, 100,000 1.9 and 1.6. A wrong guess slows down one batch.
FEW_ROWS = 25_000

# Parts of the input that one task may read, of at most 128 MB each. This bounds its time, because a source such as
# files may give a batch without a limit.
FEW_PARTS = 16

# Python workers that one task may use in turn; each may come to write, and then keep a connection.
WORKERS_PER_TASK = 2

# The figures in the log line of a batch.
LOGGED_FIGURES = ("rows_in", "dead_letters", "late", "dropped")

# Dead letters are stored by part, so that a task that runs again replaces its own. A state's letters: part -1 from the
# driver, 0, 1, .. from tasks. Letters without a state: 0, 1, .. from sources, -1, -2, .. from cutoffs of late tuples.
DRIVER_PART = LATE_PARTS = -1

logger = logging.getLogger(__name__)


class _Late(NamedTuple):
    """Tuples that were left out as too late, and how many of them became dead letters."""

    dropped: int
    letters: int


class BatchRunner:
    """Runs micro-batches of one pipeline. Give it to Spark's foreachBatch.

    conn: the driver's connection in autocommit mode, used by nothing else meanwhile; its ledger has been acquired.
    dsn: where executors connect to. shadow: feed the shadows of the states.
    newest_event: the latest event time of the last batch; None if it has none.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        ledger: BatchLedger,
        conn: psycopg.Connection,
        dsn: str,
        checkpoint: CheckpointPath,
        *,
        shadow: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self._ledger = ledger
        self.idle = IdleTimers(pipeline)
        self._conn = conn
        self._dsn = dsn
        self._checkpoint = checkpoint
        self._disk = CheckpointDisk(checkpoint)
        self._shadow = shadow
        self._writers = writer_limit(conn)
        self._rows_before = FEW_ROWS
        self.newest_event: datetime | None = None
        self._planned: dict[Hashable, SinkPlan] = {}
        # Every state in the catalog, because one that is no longer fed still says which batch it shows, and a failed
        # attempt may have fed states that are no longer declared.
        catalog = Catalog(conn)
        self._known = catalog.shadow_specs(ledger.pipeline) if shadow else catalog.specs(ledger.pipeline)
        declared = {spec.name: spec.measures for spec in pipeline.specs}
        self._unfed = {
            spec.name: {name: spec.measures[name] for name in spec.measures.keys() - declared[spec.name].keys()}
            for spec in self._known
            if spec.name in declared
        }
        # Only opaque rows can be reverted; a store of the user's own cannot.
        kinds = [f"state {spec.name}" for spec in self._known if spec.kind != "opaque"]
        self._irreversible = (*kinds, *(f"store {type(store).__name__}" for store in pipeline.stores))
        # Read once, because changelogs begin and end only when a driver starts.
        self._logged = frozenset(spec.name for spec in self._known if spec.changelog)

    def run(self, frame: DataFrame, batch_id: int) -> Batch | None:
        """Apply one micro-batch and commit it. Returns the batch, or None if it was already committed."""
        source = self.pipeline.source
        # Before the ledger relies on the plan, because a power cut can take a plan that is not on disk.
        self._disk.sync()
        batch = self._ledger.begin(
            batch_id,
            spout=source.spout,
            offsets=batch_offsets(self._checkpoint, batch_id),
            held=source.held(self._checkpoint, batch_id),
            sources=source.identities(),
            irreversible=self._irreversible,
        )
        if batch is None:
            return None
        with bound_contextvars(pipeline=batch.pipeline, txid=batch.txid, attempt=batch.attempt):
            self._run(frame, batch)
        self.look_ahead(batch)
        return batch

    def look_ahead(self, batch: Batch) -> None:
        """Find the next timer after a committed batch."""
        self.idle.look(self._conn, batch.pipeline, lambda spec: self._context(batch).session(self._conn, spec))

    def _run(self, frame: DataFrame, batch: Batch) -> None:
        started = time.monotonic()
        sessions = self._sessions(batch)
        # Before anything is reverted or written, so that writes of an older attempt that are in flight are refused.
        for session in sessions:
            session.admit()
        if batch.is_retry:
            self._revert(batch, sessions)
        figures = self._apply(frame, batch)
        keys = figures["keys_written"]
        # Before the commit, so that a batch whose writes a store has lost is not committed.
        for spec, session in zip(self._known, sessions, strict=True):
            session.check(keys.get(spec.name))
        self._ledger.commit(batch, **figures)
        # After the commit, so that readers see no batch that may still be reverted.
        for spec, session in zip(self._known, sessions, strict=True):
            session.publish(keys.get(spec.name))
        logged = {name: figures[name] for name in LOGGED_FIGURES}
        logged["seconds"] = round(time.monotonic() - started, 3)
        logger.info("batch %s committed (attempt %s)", batch.txid, batch.attempt, extra=logged)

    def _sessions(self, batch: Batch) -> list[BackendSession]:
        context = self._context(batch)
        return [context.session(self._conn, spec) for spec in self._known]

    def _revert(self, batch: Batch, sessions: Iterable[BackendSession]) -> None:
        for session in sessions:
            with self._conn.transaction():
                lock_fence(self._conn, batch)
                session.revert()
        take_back_feeding(self._conn, self.pipeline.name, batch.txid)
        with self._conn.transaction():
            lock_fence(self._conn, batch)
            delete_dead_letters(self._conn, batch)

    def _apply(self, frame: DataFrame, batch: Batch) -> dict[str, Any]:
        """Feed every state and return the batch's figures for the ledger."""
        before = committed(self._conn, batch.pipeline)
        context = replace(
            self._context(batch),
            late_before=before.watermark,
            keeps_connections=WORKERS_PER_TASK * most_tasks(frame.sparkSession) <= self._writers,
        )
        by_one_task = self._is_small and partitions_of(frame) <= FEW_PARTS
        batch_input = BatchInput(self.pipeline, frame, batch, few=by_one_task, replayed=self._letters_to_replay(batch))
        frames = Frames(self.pipeline, context, batch_input.events)
        try:
            batch_input.keep(frames)
            # Its jobs count the input, too.
            progress = advance(self.pipeline, frames, before, context, batch_input.take)
            batch_input.check_first()
            context = replace(context, watermark=progress.watermark)
            frames.reach(context)
            written = self._feed(frames, context, batch_input)
            batch_input.check()
            if not self._irreversible:  # because stopping here means that the writes must be reverted
                check_rejected(self._conn, self.pipeline, batch, frames, written)
            letters = self._write_dead_letters(batch_input, batch)
            letters += self._write_misfits(frames, written, batch)
            self._put_back(batch_input.failed_again(), batch)
            late = self._late_tuples(frames, batch)
        finally:
            frames.forget()
        self._rows_before = batch_input.rows
        self.newest_event = progress.newest
        progress = replace(progress, dropped=progress.dropped + late.dropped)
        return _figures(batch_input, progress, written, letters + late.letters)

    def _context(self, batch: Batch) -> BatchContext:
        own = frozenset(spec.name for spec in self.pipeline.specs)
        return BatchContext(batch, self._dsn, own, self._shadow, self._logged, self._unfed, self._writers)

    def _feed(self, frames: Frames, context: BatchContext, batch_input: BatchInput) -> dict[str, Written]:
        written: dict[str, Written] = {}
        for plan in self._plans(context.writers):
            emits = [emitted_columns(fed) if self.pipeline.readers(fed) else {} for fed in plan.states]
            tasks = [task_for(fed, context, emits=bool(each)) for fed, each in zip(plan.states, emits, strict=True)]
            job = SinkJob(plan.rows(frames, context), tasks, emits, frames.keep)
            written |= zip((fed.name for fed in plan.states), job.written(), strict=True)
            batch_input.take(job.metrics())
            for place, fed in enumerate(plan.states):
                if emits[place]:
                    frames.add(fed, job.new_values(place))
        return written

    @property
    def _is_small(self) -> bool:
        return self._rows_before < FEW_ROWS

    def _plans(self, writers: int) -> Iterator[SinkPlan]:
        """Yield the plans that feed the states; those of one level are fed together as far as there are connections."""
        for level in self.pipeline.levels:
            for states, partitions in rounds(level, writers):
                plan = SinkPlan(states, partitions, self._is_small)
                yield self._planned.setdefault((*states, self._is_small), plan)

    def _write_dead_letters(self, batch_input: BatchInput, batch: Batch) -> int:
        letters = 0
        for place, lines in batch_input.dead_letters():
            with self._conn.transaction():
                lock_fence(self._conn, batch)
                letters += write_dead_letters(self._conn, batch, lines, part=place)
        return letters

    def _letters_to_replay(self, batch: Batch) -> list[RawLetter]:
        # Asked first, because letters rarely wait. A retry always takes, because its first attempt may have taken some.
        if not batch.is_retry and not dead_letter_replay.are_waiting(self._conn, batch.pipeline):
            return []
        with self._conn.transaction():
            lock_fence(self._conn, batch)
            return dead_letter_replay.take(self._conn, batch)

    def _put_back(self, failed: list[tuple[int, str]], batch: Batch) -> None:
        if failed:
            with self._conn.transaction():
                lock_fence(self._conn, batch)
                dead_letter_replay.put_back(self._conn, failed)

    def _late_tuples(self, frames: Frames, batch: Batch) -> _Late:
        """Count the tuples that streams leave out as late; those that no stream reads become dead letters."""
        dropped = letters = 0
        for place, stream in enumerate(self.pipeline.cutoffs):
            late = frames.of(stream.late())
            if self.pipeline.has_late_reader(stream):
                dropped += late.count()
                continue
            assert stream.cutoff is not None
            kept = late_letters(stream.cutoff, late)
            with self._conn.transaction():
                lock_fence(self._conn, batch)
                found = write_dead_letters(self._conn, batch, kept, part=LATE_PARTS - place)
            dropped, letters = dropped + found, letters + found
        return _Late(dropped, letters)

    def _write_misfits(self, frames: Frames, written: dict[str, Written], batch: Batch) -> int:
        letters = 0
        for fed in self.pipeline.ordered:
            if isinstance(fed, PersistentAggregate) and written[fed.name].misfits:
                misfits = misfit_letters(fed, frames.of(fed.stream))
                with self._conn.transaction():
                    lock_fence(self._conn, batch)
                    letters += write_dead_letters(self._conn, batch, misfits, state=fed.name, part=DRIVER_PART)
        return letters


def _figures(batch_input: BatchInput, progress: EventTime, written: dict[str, Written], letters: int) -> dict[str, Any]:
    return {
        "rows_in": batch_input.rows,
        "keys_written": {name: part.keys for name, part in written.items()},
        "dead_letters": letters + sum(part.invalid for part in written.values()),
        "late": progress.late,
        "dropped": progress.dropped,
        "tasks": {name: {"tasks": part.tasks, "largest": part.largest} for name, part in written.items()},
        "watermark": progress.watermark,
        "marks": progress.stored,
    }
