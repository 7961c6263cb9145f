"""Recovery: make states, ledger, checkpoint and sources of a pipeline consistent after one was restored or lost.

Each operation first checks everything and reports what it finds. If something cannot be repaired, it raises an error
before it changes anything. The driver must not run during a recovery.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import psycopg
from pyspark.sql import SparkSession

from tidegauge.pipelines.checkpoint.files import CheckpointPath, StorePath, checkpoint_folder
from tidegauge.pipelines.checkpoint.folder import batch_offsets, checkpoint_id, last_committed, settle
from tidegauge.pipelines.connections import connect
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.driver.session import PATIENCE_MS
from tidegauge.pipelines.errors import Gap, InputLostError
from tidegauge.pipelines.repair.checkpoint_writer import write_checkpoint
from tidegauge.pipelines.sources.source import ListedSource, Source, listed_files
from tidegauge.state_backends.dead_letters.letters import DeadLetter, write_lost_input
from tidegauge.state_backends.errors import CheckpointMismatchError, ResumeError, RewindError
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.ledger.epochs import new_epoch
from tidegauge.state_backends.ledger.state_lock import state_locks
from tidegauge.state_backends.repair.resume import Files, Offsets, ResumePoint, files_after, files_up_to, resume_point
from tidegauge.state_backends.repair.rewind import Rewind
from tidegauge.state_backends.schema.catalog import Catalog

# An offset of Spark's file source that is after every entry of its log.
LAST_ENTRY = {"logOffset": sys.maxsize}


@dataclass(frozen=True)
class Recovery:
    """The operations on one pipeline; each yields what it finds and what it does, a line at a time.

    checkpoint: Spark's folder of the pipeline, as RunOptions has it. spark: makes the session, which is needed to check
    some sources and to read a checkpoint in a store.
    All raise PipelineHeldError while a driver runs, and StateBusyError while another operation uses a state.
    """

    pipeline: Pipeline
    dsn: str
    checkpoint: CheckpointPath
    spark: Callable[[], SparkSession]

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoint", checkpoint_folder(self.checkpoint))

    @property
    def name(self) -> str:
        return self.pipeline.name

    def rewind(self, to: int | None, *, dry_run: bool = False) -> Iterator[str]:
        """Rewind states and ledger to batch `to`, and write a checkpoint that resumes after it.

        to: None for the last batch of the checkpoint; the checkpoint is then left as it is.
        Raises RewindError, ResumeError, CheckpointMismatchError or InputLostError if that is not possible.
        """
        with self._held() as conn:
            rewind = Rewind(conn, self.name, self._txid_of_checkpoint(conn) if to is None else to)
            point = None if to is None else resume_point(conn, self.name, to)
            yield f"{self.name}: from batch {rewind.committed} back to batch {rewind.to}"
            steps = rewind.plan()
            yield from map(str, steps)
            again = partial(files_after, conn, self.name, rewind.to)
            yield from self._check_sources(rewind.to, point.offsets if point else self._offsets(), again)
            if stuck := [step for step in steps if step.obstacle]:
                raise RewindError(f"pipeline {self.name!r} cannot go back to batch {rewind.to}: {stuck[0]}")
            if dry_run:
                return
            with state_locks(conn, Catalog(conn).names(self.name), "rewind"):
                rewind.run()
            rewind.follow()
            yield f"{self.name}: is at batch {rewind.to}"
            if point is not None:
                yield from self._write(conn, point)

    def restore_checkpoint(self, *, dry_run: bool = False) -> Iterator[str]:
        """Rebuild the checkpoint from the ledger's offsets, after it was lost, or one of the two was restored.

        Raises ResumeError if the ledger lacks offsets, InputLostError if a source lacks the input after them.
        """
        with self._held() as conn:
            point = resume_point(conn, self.name)
            yield f"{self.name}: the ledger is at batch {point.txid}, {self._describe_checkpoint(point)}"
            yield from self._check_sources(point.txid, point.offsets, partial(self._read_after, conn, point))
            if not dry_run:
                self._end_epoch(conn, point)
                yield from self._write(conn, point)

    def skip_lost(self, *, dry_run: bool = False) -> Iterator[str]:
        """Move the checkpoint past input that a source has lost, and record the gap as a dead letter.

        Raises InputLostError if a source cannot tell which input is lost and which is left.
        """
        with self._held() as conn:
            point = resume_point(conn, self.name)
            offsets, gaps = self._left(point.offsets)
            fixed = [spec.name for spec in Catalog(conn).specs(self.name) if spec.kind != "opaque"]
            if gaps and fixed and point.opened is not None:
                raise InputLostError(
                    f"pipeline {self.name!r}: batch {point.txid + 1} has begun to write state {fixed[0]!r}, which "
                    f"cannot be reverted, and lacks {gaps[0]}; run with --reprocess"
                )
            if not gaps:
                yield f"{self.name}: no input is lost, nothing to skip"
                return
            yield from (f"{self.name}: lost {gap}" for gap in gaps)
            if not dry_run:
                # The record is written first, so that after a crash in between no gap is skipped without a record.
                write_lost_input(conn, self.name, point.txid, [_letter(gap) for gap in gaps])
                self._end_epoch(conn, point)
                yield from self._write(conn, point.moved(offsets))

    @contextmanager
    def _held(self) -> Iterator[psycopg.Connection]:
        with ExitStack() as held:
            conn = held.enter_context(connect(self.dsn, f"{self.name} recovery"))
            held.enter_context(BatchLedger(conn, self.name).idle(patience_ms=PATIENCE_MS))
            if isinstance(self.checkpoint, StorePath):
                self.spark()  # because a store is read through the session
            settle(conn, self.name, self.checkpoint)
            yield conn

    def _txid_of_checkpoint(self, conn: psycopg.Connection) -> int:
        """Return the txid of the last batch that is done in the checkpoint; the ledger must have that batch as well."""
        point, done = resume_point(conn, self.name), last_committed(self.checkpoint)
        if done is None or checkpoint_id(self.checkpoint) != point.checkpoint_id:
            raise CheckpointMismatchError(
                f"pipeline {self.name!r}: {self.checkpoint} is not the checkpoint that the ledger is bound to, or has "
                f"finished no batch; run `tidegauge pipelines restore-checkpoint {self.name}`"
            )
        txid = point.txid - (point.batch_id - done)
        if txid > point.txid:
            raise RewindError(
                f"pipeline {self.name!r}: the checkpoint is {txid - point.txid} batches ahead of the ledger, which has "
                f"no such batches; rebuild it: `tidegauge pipelines restore-checkpoint {self.name}`"
            )
        known = resume_point(conn, self.name, txid).offsets
        if list(known) != self._offsets():
            raise CheckpointMismatchError(
                f"pipeline {self.name!r}: the checkpoint's batch {done} ends at other offsets than batch {txid} in the "
                f"ledger; run `tidegauge pipelines restore-checkpoint {self.name}`"
            )
        return txid

    def _offsets(self) -> Offsets:
        done = last_committed(self.checkpoint)
        found: Offsets | None = None if done is None else batch_offsets(self.checkpoint, done)
        if found is None:
            raise ResumeError(f"pipeline {self.name!r}: {self.checkpoint} has no offsets of batch {done}")
        return found

    def _check_sources(self, txid: int, offsets: Offsets, again: Callable[[int], Collection[str]]) -> Iterator[str]:
        """Yield for each source whether it has all input after its offset. Then raise InputLostError if one has not."""
        self._check_count(offsets)
        lost = []
        for source, problem in self.pipeline.source.check_from(offsets, again, self.spark):
            known = getattr(source, "unasked", "has everything after that batch")
            yield f"{source}: {problem or known}"
            lost += [problem] if problem else []
        if lost:
            raise InputLostError(f"pipeline {self.name!r} cannot read on from batch {txid}: {lost[0]}")

    def _left(self, offsets: Offsets) -> tuple[Offsets, list[Gap]]:
        """Return the offsets from which all input is available, and the gaps before them."""
        self._check_count(offsets)
        left, gaps = list(offsets), list[Gap]()
        for place, (source, problem) in enumerate(self.pipeline.source.check_from(offsets, lambda _: (), self.spark)):
            if problem is None and hasattr(source, "unasked"):
                raise InputLostError(f"pipeline {self.name!r}: {source} {source.unasked}; nothing can be skipped")
            if problem is not None:
                if problem.left is None:
                    raise problem
                left[place] = problem.left
                gaps += problem.gaps
        return left, gaps

    def _check_count(self, offsets: Offsets) -> None:
        if len(offsets) != len(self._sources(offsets)):
            raise ResumeError(
                f"pipeline {self.name!r}: has {len(self.pipeline.sources)} sources, but the batch read {len(offsets)}; "
                "run the release that wrote the batch, or run with --reprocess"
            )

    def _write(self, conn: psycopg.Connection, point: ResumePoint) -> Iterator[str]:
        kept = write_checkpoint(self.checkpoint, point, self._sources(point.offsets), self._read(conn, point))
        yield f"{self.name}: {self.checkpoint} resumes after batch {point.txid}"
        if kept is not None:
            yield f"{self.name}: the former checkpoint is in {kept}"

    def _read(self, conn: psycopg.Connection, point: ResumePoint) -> Sequence[Mapping[int, Files]]:
        last = point.txid + (point.opened is not None)
        return listed_files(conn, self.name, last, enumerate(self._sources(point.offsets)))

    def _sources(self, offsets: Offsets) -> Sequence[Source]:
        return self.pipeline.source.at_places(len(offsets))

    def _read_after(self, conn: psycopg.Connection, point: ResumePoint, place: int) -> set[str]:
        """Return the files read after the point, from the ledger and from the checkpoint if that one is ahead."""
        later = files_after(conn, self.name, point.txid, place)
        source = self._sources(point.offsets)[place]
        if self._batches_ahead(point) and isinstance(source, ListedSource):
            batches = files_up_to(conn, self.name, point.txid, place).values()
            taken = source.taken(self.checkpoint / "sources" / str(place), LAST_ENTRY)
            later |= taken.keys() - {path for files in batches for path in files}
        return later

    def _end_epoch(self, conn: psycopg.Connection, point: ResumePoint) -> None:
        """Make a new epoch if the checkpoint is ahead, because other batches have already used the next txids.

        Call it before the checkpoint is written, because afterwards it is no longer ahead.
        """
        if ahead := self._batches_ahead(point):
            new_epoch(conn, f"pipeline {self.name!r}: its checkpoint was {ahead} batches ahead of it", self.name)

    def _batches_ahead(self, point: ResumePoint) -> int:
        done = last_committed(self.checkpoint)
        is_bound = checkpoint_id(self.checkpoint) == point.checkpoint_id
        return max(0, done - point.batch_id) if is_bound and done is not None else 0

    def _describe_checkpoint(self, point: ResumePoint) -> str:
        done = last_committed(self.checkpoint)
        if checkpoint_id(self.checkpoint) != point.checkpoint_id or done is None:
            return "the checkpoint is lost"
        difference = done - point.batch_id
        return f"the checkpoint is {abs(difference)} batches {'ahead' if difference > 0 else 'behind'}"


def _letter(gap: Gap) -> DeadLetter:
    return DeadLetter(gap.place, "", f"lost: {gap} were no longer available, left out by skip-lost")
