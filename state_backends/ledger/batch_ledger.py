"""The ledger: which driver may write a pipeline's states, which batch is open, and which is committed.

One row per pipeline holds all three, so a batch becomes visible in all states of the pipeline at once, and a driver
that was replaced can no longer write. Executors lock that row FOR SHARE while they write. Acquiring a pipeline and
committing a batch update the row, so they wait for executors that are writing.
"""

import json
import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import JsonbLoader

from tidegauge.state_backends.errors import (
    BatchOrderError,
    CheckpointMismatchError,
    FencedError,
    InputChangedError,
    PipelineHeldError,
    SourceReplacedError,
)
from tidegauge.state_backends.ledger import driver_status, epochs
from tidegauge.state_backends.ledger.batch import (
    Batch,
    input_difference,
    record_attempt,
    record_commit,
    record_first,
    restored,
    taken_over,
)
from tidegauge.state_backends.ledger.batch_time import BatchClock
from tidegauge.state_backends.ledger.epochs import LastBatch
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput, merged, replaced
from tidegauge.state_backends.ledger.state_lock import release_session_lock, take_session_lock

# Distinguishes this lock from other advisory locks of the same name; tidegauge.has_driver in SQL repeats it.
LOCK_CLASS = 7103845

CHANNEL = "tidegauge"

logger = logging.getLogger(__name__)


class BatchLedger:
    """The ledger of one pipeline, for its driver.

    conn: a psycopg connection in autocommit mode that stays open while the driver runs, because its session holds the
    pipeline's lock. The pipeline must be registered (see Catalog). clock: the driver's, if it outlives this ledger.
    """

    def __init__(self, conn: psycopg.Connection, pipeline: str, clock: BatchClock | None = None) -> None:
        self.pipeline = pipeline
        self.clock = clock or BatchClock()
        self.fence: int | None = None
        self.epoch = self.token = ""
        self._conn = conn

    def acquire(self, *, patience_ms: int = 1, last: LastBatch | None = None) -> int:
        """Take the pipeline over and return the new fence; work under an older fence is refused from then on.

        The fence comes with a random token, because an older driver may hold an equal fence after the ledger was
        restored. If the ledger may have been restored, a new epoch is made first (see epochs.py).
        Waits for transactions in flight under the old fence, so that none of them can commit afterwards.
        patience_ms: how long to wait for the lock, which PostgreSQL releases when it notices that a driver died.
        last: the last batch that the checkpoint has seen committed.
        Raises PipelineHeldError, naming host, pid and start of the driver, while another driver is alive.
        """
        # Take it once only, because a session that takes an advisory lock twice must release it twice.
        if self.fence is None:
            self._take_lock(patience_ms)
        row = self._conn.execute(
            "UPDATE tidegauge.pipeline SET fence = fence + 1, token = %s, epoch = coalesce(nullif(epoch, ''), %s) "
            "WHERE name = %s RETURNING fence, token, epoch",
            [secrets.token_hex(8), epochs.current_epoch(self._conn, self.pipeline, last), self.pipeline],
        ).fetchone()
        if row is None:
            self.release()
            raise BatchOrderError(f"pipeline {self.pipeline!r} is not registered; register its states first")
        self.fence, self.token, self.epoch = row
        assert self.fence is not None
        driver_status.register_driver(self._conn, self.pipeline)
        return self.fence

    @contextmanager
    def idle(self, *, patience_ms: int = 1) -> Iterator[None]:
        """Hold the pipeline's lock, so that no driver can start, without raising the fence.

        patience_ms: how long to wait for a driver to end. Raises PipelineHeldError if it does not.
        """
        self._take_lock(patience_ms)
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Release the pipeline's lock. The end of the session does the same."""
        release_session_lock(self._conn, LOCK_CLASS, self.pipeline)
        self.fence, self.token = None, ""

    def check_sources(self, sources: Sequence[Identity]) -> None:
        """Raise SourceReplacedError if the states were fed from sources with other ids. sources: as for `bind`."""
        with self._conn.transaction():
            self._check_sources(self._locked_row(), sources)

    def bind(self, checkpoint_id: str, *, sources: Sequence[Identity] = (), rebind: bool = False) -> None:
        """Bind the pipeline to its checkpoint (Spark's query id), whose batch numbers the ledger follows.

        sources: what each source reads, with its id. rebind: accept another checkpoint and count its batches from 0,
        and accept sources that were replaced. It is an option, because only the operator can know that the source
        continues where the states stopped.
        Raises CheckpointMismatchError if batches were committed from another checkpoint, SourceReplacedError if they
        were read from a source with another id.
        """
        with self._conn.transaction():
            row = self._locked_row()
            if not rebind:
                self._check_sources(row, sources)
            self._keep_sources(row, sources)
            if row["checkpoint_id"] == checkpoint_id:
                return
            # These have committed batches but no checkpoint: a shadow that was not fed yet, whose txids begin higher,
            # and a pipeline whose history was handed over to its own source.
            is_new = row["checkpoint_id"] is None and (row["reprocesses"] or row["backfill"]) is not None
            if row["committed_txid"] and not rebind and not is_new:
                raise CheckpointMismatchError(
                    f"pipeline {self.pipeline!r}: its states were fed from checkpoint {row['checkpoint_id']!r} up to "
                    f"batch {row['committed_txid']}, and this is checkpoint {checkpoint_id!r}: input would be counted "
                    f"twice or left out; run `tidegauge pipelines restore-checkpoint {self.pipeline}`, which writes "
                    "one that resumes where they stopped, or run with --reprocess to count from the input's start, or "
                    "with --rebind if the source continues exactly where they stopped"
                )
            self._conn.execute(
                "UPDATE tidegauge.pipeline SET checkpoint_id = %s, committed_batch_id = -1 WHERE name = %s",
                [checkpoint_id, self.pipeline],
            )

    def checkpoint_id(self) -> str | None:
        """Return the checkpoint that the pipeline is bound to; None before its first one."""
        row = self._conn.execute(
            "SELECT checkpoint_id FROM tidegauge.pipeline WHERE name = %s", [self.pipeline]
        ).fetchone()
        return row[0] if row else None

    def lock_committed(self) -> int:
        """Return the committed txid, and keep it from changing until the caller's transaction ends.

        Raises FencedError if another driver has taken over.
        """
        row = self._conn.execute(
            "SELECT fence, token, tidegauge.is_original(), committed_txid "
            "FROM tidegauge.pipeline WHERE name = %s FOR SHARE",
            [self.pipeline],
        ).fetchone()
        self.check(*(row[:3] if row else (None, "")))
        assert row is not None
        return int(row[3])

    def start(self, committed: int) -> Batch:
        """Return the committed batch under this driver's fence as attempt 0: to a store, a driver that starts."""
        assert self.fence is not None
        now = datetime.now(UTC)
        return Batch(self.pipeline, self.fence, committed, 0, now, epoch=self.epoch, token=self.token)

    def check(self, fence: int | None, token: str, is_original: bool = True) -> None:
        """Raise FencedError unless fence and token, read from the ledger, are this driver's.

        fence: None if the pipeline no longer exists. is_original: False if the ledger was restored, see epochs.py.
        """
        if fence is None or (fence, token) != (self.fence, self.token):
            raise _overtaken(self.pipeline, self.fence, fence)
        if not is_original:
            raise restored(self.pipeline)

    def begin(
        self,
        batch_id: int,
        *,
        spout: str = "opaque",
        offsets: Any = None,
        held: Sequence[SourceInput | None] | None = None,
        sources: Sequence[Identity] = (),
        irreversible: Sequence[str] = (),
    ) -> Batch | None:
        """Open Spark's batch `batch_id` and return the attempt, or None if it is committed and must be skipped.

        Normally it is the next batch; if that is open already, an earlier attempt died and this is a retry. The
        committed batch comes again if Spark died before it recorded our commit, or if its checkpoint is an older one.
        It is skipped if the spout is transactional and the input is the same. Otherwise the commit is reverted and the
        new tuples are applied. That is impossible once the next batch has been opened, because the revert of that batch
        used up the previous versions; the same input is then skipped for every spout.
        offsets: the source's position, any JSON value, stored with the batch. held: the input that each source gave to
        the batch; None if unknown, and then taken to be the same. sources: what each source reads, with its id.
        irreversible: states and stores that cannot be reverted, so that only the same input may be applied to them.
        Raises FencedError if another driver has taken over, InputChangedError for other input that cannot be applied,
        SourceReplacedError for a source with another id, ClockError if the database's clock cannot be right,
        BatchOrderError for any other batch.
        """
        # Statements wait for an answer only where it is read: four round trips to the database, not nine.
        with self._conn.pipeline(), self._conn.transaction():
            row = self._locked_row()
            self._check_sources(row, sources)
            if batch_id == row["committed_batch_id"] and batch_id >= 0:
                changed = input_difference(self._conn, self.pipeline, row["committed_txid"], held)
                if changed:
                    self._check_revertible(row, changed, irreversible)
                elif spout == "transactional" or (changed == "" and row["open_txid"] is not None):
                    return None
                if row["open_txid"] is None:
                    row = self._reverted_commit(row)
            elif row["open_txid"] is not None and batch_id == row["committed_batch_id"] + 1:
                changed = input_difference(self._conn, self.pipeline, row["open_txid"], held)
                if changed and irreversible:
                    raise self._input_changed(row["open_txid"], changed, _cannot_revert(irreversible))
            if batch_id != row["committed_batch_id"] + 1:
                raise BatchOrderError(self._out_of_order(batch_id, row))
            self._keep_sources(row, sources)
            return self._open(row, batch_id, offsets, held)

    def commit(
        self,
        batch: Batch,
        *,
        rows_in: int | None = None,
        keys_written: Mapping[str, int] | None = None,
        dead_letters: int = 0,
        late: int = 0,
        dropped: int = 0,
        tasks: Mapping[str, Mapping[str, int]] | None = None,
        watermark: datetime | None = None,
        marks: Mapping[str, datetime] | None = None,
    ) -> None:
        """Make the batch visible in every state of the pipeline at once, and notify listeners.

        The other arguments are figures for the batch's record. rows_in, dead_letters: rows. keys_written: state to
        number of keys. late: events older than the watermark; dropped: late events that were not counted.
        tasks: state to `{"tasks": how many wrote it, "largest": keys of the largest}`.
        watermark: the event time that the batch reached, timezone-aware. marks: the same per stream.
        Raises FencedError if another driver or attempt has taken over.
        """
        with self._conn.pipeline(), self._conn.transaction():
            done = self._conn.execute(
                "UPDATE tidegauge.pipeline SET committed_txid = open_txid, committed_attempt = open_attempt, "
                "committed_batch_id = open_batch_id, committed_time = open_time, "
                "open_txid = NULL, open_attempt = NULL, open_batch_id = NULL, open_time = NULL "
                "WHERE name = %s AND fence = %s AND token = %s AND open_txid = %s AND open_attempt = %s "
                "AND tidegauge.is_original() RETURNING 1",
                [batch.pipeline, batch.fence, batch.token, batch.txid, batch.attempt],
            ).fetchone()
            if done is None:
                raise FencedError(taken_over(batch))
            record_commit(
                self._conn,
                batch,
                rows_in=rows_in,
                keys_written=json.dumps(dict(keys_written or {})),
                dead_letters=dead_letters,
                late=late,
                dropped=dropped,
                tasks=json.dumps({state: dict(spread) for state, spread in (tasks or {}).items()}),
                watermark=watermark,
                marks=json.dumps({stream: mark.isoformat() for stream, mark in (marks or {}).items()}),
            )
            notify(self._conn, batch.pipeline, txid=batch.txid)

    def _take_lock(self, patience_ms: int) -> None:
        if not take_session_lock(self._conn, LOCK_CLASS, self.pipeline, patience_ms):
            raise PipelineHeldError(
                f"pipeline {self.pipeline!r} is held by a live driver "
                f"({driver_status.describe_holder(self._conn, self.pipeline)}); stop it before starting another"
            )

    def _locked_row(self) -> dict[str, Any]:
        with self._conn.cursor(row_factory=dict_row) as cursor:
            # Because Django's connections leave JSON as text.
            cursor.adapters.register_loader("jsonb", JsonbLoader)
            row = cursor.execute(
                "SELECT *, tidegauge.is_original() AS is_original FROM tidegauge.pipeline WHERE name = %s FOR UPDATE",
                [self.pipeline],
            ).fetchone()
        self.check(*((row["fence"], row["token"], row["is_original"]) if row else (None, "")))
        assert row is not None
        return row

    def _check_sources(self, row: Mapping[str, Any], sources: Sequence[Identity]) -> None:
        # A pipeline that has counted nothing yet may read any source, because nothing can be missed or counted twice.
        has_counted = row["committed_txid"] > row["fed_after"]
        for name, before, now in replaced(row["sources"], sources) if has_counted else []:
            raise SourceReplacedError(
                f"pipeline {self.pipeline!r}: its source {name!r} is {now!r} now, and its states were fed from "
                f"{before!r} up to batch {row['committed_txid']}: it was deleted and made again, or moved, and input "
                "would be left out or counted twice; run with --reprocess to rebuild the states from what it holds "
                "now, or with --rebind if it continues exactly where they stopped (and with another --checkpoint, "
                "if it is to be counted from its start)"
            )

    def _keep_sources(self, row: Mapping[str, Any], sources: Sequence[Identity]) -> None:
        known = merged(row["sources"], sources)
        if known != row["sources"]:
            self._conn.execute(
                "UPDATE tidegauge.pipeline SET sources = %s::jsonb WHERE name = %s", [json.dumps(known), self.pipeline]
            )

    def _check_revertible(self, row: Mapping[str, Any], changed: str, irreversible: Sequence[str]) -> None:
        """Raise InputChangedError unless the committed batch can be reverted and applied with its new input."""
        txid = row["committed_txid"]
        if row["open_txid"] is not None:
            raise self._input_changed(txid, changed, f"batch {row['open_txid']} has begun since")
        if irreversible:
            raise self._input_changed(txid, changed, _cannot_revert(irreversible))
        logger.warning("pipeline %s: batch %s comes with other input (%s): reverted", self.pipeline, txid, changed)

    def _input_changed(self, txid: int, changed: str, reason: str) -> InputChangedError:
        return InputChangedError(
            f"pipeline {self.pipeline!r}: batch {txid} comes again with other input ({changed}), and cannot be "
            f"reverted: {reason}; run `tidegauge pipelines restore-checkpoint {self.pipeline}`, which rebuilds "
            "the checkpoint from the ledger, or run with --reprocess to count from the start of the input"
        )

    def _reverted_commit(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the ledger row as it was while the committed batch was open."""
        before = self._conn.execute(
            "SELECT attempt, batch_time FROM tidegauge.batch WHERE pipeline = %s AND txid = %s",
            [self.pipeline, row["committed_txid"] - 1],
        ).fetchone()
        attempt, batch_time = before or (0, None)
        # If expiry has freed rows by a later time, the batch gets that time: it may have been built on those rows.
        times = self._conn.execute(
            "SELECT greatest(%s::timestamptz, max(expired_until)) FROM tidegauge.state WHERE pipeline = %s",
            [row["committed_time"], self.pipeline],
        ).fetchone()
        assert times is not None
        return row | {
            "committed_txid": row["committed_txid"] - 1,
            "committed_attempt": attempt,
            "committed_batch_id": row["committed_batch_id"] - 1,
            "committed_time": batch_time,
            "open_txid": row["committed_txid"],
            "open_attempt": row["committed_attempt"],
            "open_time": times[0],
        }

    def _open(
        self, row: dict[str, Any], batch_id: int, offsets: Any, held: Sequence[SourceInput | None] | None
    ) -> Batch:
        txid = row["committed_txid"] + 1
        retry = row["open_txid"] == txid
        attempt = (row["open_attempt"] or 0) + 1 if retry else 1
        # Read the clock under the row's lock, so that rows that expiry has deleted are expired for this batch too. All
        # attempts have one time, and batch times do not decrease, so that what has expired stays expired.
        now = self.clock.read(self._conn, self.pipeline)
        batch_time = self.clock.batch_time(now, row["committed_time"], row["open_time"] if retry else None)
        self._conn.execute(
            "UPDATE tidegauge.pipeline SET committed_txid = %(committed_txid)s, "
            "committed_attempt = %(committed_attempt)s, committed_batch_id = %(committed_batch_id)s, "
            "committed_time = %(committed_time)s, open_txid = %(txid)s, open_attempt = %(attempt)s, "
            "open_batch_id = %(batch_id)s, open_time = %(open_time)s WHERE name = %(name)s",
            row | {"txid": txid, "attempt": attempt, "batch_id": batch_id, "open_time": batch_time},
        )
        assert self.fence is not None
        batch = Batch(self.pipeline, self.fence, txid, attempt, batch_time, epoch=row["epoch"], token=self.token)
        ttls = record_attempt(self._conn, batch, batch_id, offsets, held)
        if txid == row["fed_after"] + 1:
            record_first(self._conn, batch)
        return replace(batch, ttls=ttls)

    def _out_of_order(self, batch_id: int, row: dict[str, Any]) -> str:
        expected = row["committed_batch_id"] + 1
        where = f"pipeline {self.pipeline!r}: the checkpoint brings batch {batch_id}, the ledger expects {expected}"
        if row["reprocesses"] is not None:
            again = f"tidegauge run {row['reprocesses']} --abort-reprocess"
            return f"{where}; run `{again}`, and begin the reprocess again"
        restore = f"`tidegauge pipelines restore-checkpoint {self.pipeline}`"
        if batch_id < expected:
            rewind = f"`tidegauge pipelines rewind {self.pipeline} --to-checkpoint`"
            return (
                f"{where}: the checkpoint is behind by {expected - batch_id}; run {restore}, which brings it up to the "
                f"ledger, or {rewind}, which takes the states back to it"
            )
        return (
            f"{where}: batches {expected} to {batch_id - 1} never reached the states, as after a restore of the "
            "database, or if an application did not call its sink with them; run "
            f"{restore}, which takes the checkpoint back to batch {expected - 1}, so that later input is read again"
        )


def notify(conn: psycopg.Connection, pipeline: str, **members: int) -> None:
    """Notify listeners, once the caller's transaction commits, that readers of the pipeline get other answers.

    members: further members of the message, beside `pipeline`.
    """
    conn.execute("SELECT pg_notify(%s, %s)", [CHANNEL, json.dumps({"pipeline": pipeline, **members})])


def _overtaken(pipeline: str, held: int | None, found: int | None) -> FencedError:
    """Return the error for a driver with an outdated fence. found: the ledger's fence; None: the pipeline is gone."""
    now = "no pipeline" if found is None else f"fence {found}" + " of another acquisition" * (found == held)
    return FencedError(
        f"pipeline {pipeline!r}: this driver holds fence {held} and the ledger has {now}; "
        "another driver has taken over, so stop this one"
    )


def _cannot_revert(irreversible: Sequence[str]) -> str:
    return f"{', '.join(map(repr, irreversible))} cannot go back"
