"""Spark's checkpoint folder of a pipeline: the source offsets of its batches, and the folders of a reprocess."""

import json
import logging
import time
from pathlib import Path
from typing import Any

import psycopg

from tidegauge.pipelines.checkpoint.files import MARK, CheckpointPath, move, remove, write_whole
from tidegauge.pipelines.errors import CheckpointUnreachableError
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.ledger.batch_ledger import BatchLedger
from tidegauge.state_backends.ledger.epochs import LastBatch
from tidegauge.state_backends.schema import reprocess
from tidegauge.state_backends.schema.kept import Kept
from tidegauge.state_backends.schema.reprocess import AFTER_MOVE

LAST_BATCH = "tidegauge.json"

logger = logging.getLogger(__name__)


def batch_offsets(checkpoint: CheckpointPath, batch_id: int) -> Any:
    """Return the offset of each source at the end of a batch, or None if the file cannot be read or parsed."""
    try:
        _version, _metadata, *offsets = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    except (OSError, ValueError):
        return None
    return [None if offset == "-" else json.loads(offset) for offset in offsets]


def offset_range(checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> tuple[Any, Any] | None:
    """Return the offsets at the start and the end of a source's part of a batch; None if the checkpoint lacks them.

    place: the number of the source. The first offset is None if the batch is the source's first one.
    """
    ends = batch_offsets(checkpoint, batch_id)
    starts = batch_offsets(checkpoint, batch_id - 1) if batch_id else []
    if ends is None or starts is None or place >= len(ends):
        return None
    return (starts[place] if place < len(starts) else None), ends[place]


def plan_without_input(checkpoint: CheckpointPath, batch_id: int) -> bool:
    """Plan Spark's batch `batch_id` with no input: every source keeps its offset. Nothing else may use the folder.

    When Spark starts, it runs a batch that is planned and not done. Returns False if the batch is already planned, or
    if the previous batch is not the last one that is done.
    """
    planned, before = (checkpoint / "offsets" / str(number) for number in (batch_id, batch_id - 1))
    if planned.exists() or not before.exists() or last_committed(checkpoint) != batch_id - 1:
        return False
    version, metadata, *offsets = before.read_text().split("\n")
    now = json.dumps(json.loads(metadata) | {"batchTimestampMs": int(time.time() * 1000)}, separators=(",", ":"))
    write_whole(planned, "\n".join([version, now, *offsets]))
    return True


def fit_ticks(checkpoint: CheckpointPath, sources: int, *, ticks: bool) -> None:
    """Add an offset for the tick source to the offsets that Spark resumes from, or remove it, as `ticks` says.

    sources: how many the pipeline reads events from. Needed because Spark refuses a query whose number of sources
    differs from its offsets. Nothing else may use the folder.
    """
    done = last_committed(checkpoint)
    # Spark reads the offsets of the last batch that is done, of the one before, and of one that is planned.
    for number in range(done - 1, done + 2) if done is not None else ():
        file = checkpoint / "offsets" / str(number)
        version, metadata, *offsets = file.read_text().splitlines() if file.exists() else ["", ""]
        has_tick = len(offsets) == sources + 1 and json.loads(offsets[-1]).keys() == {"tick"}
        if ticks and len(offsets) == sources:
            offsets.append('{"tick": 0}')
        elif has_tick and not ticks:
            offsets.pop()
        else:
            continue
        write_whole(file, "\n".join([version, metadata, *offsets]))
        if isinstance(file, Path):
            # Hadoop's checksum is of the old content, so Spark would refuse the file.
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def committed_offset(checkpoint: CheckpointPath, place: int = 0) -> dict[str, Any] | None:
    """Return a source's offset at the end of the last batch that Spark noted as done; None before the first batch.

    place: the number of the source; Spark numbers the query's sources in the checkpoint.
    """
    done = last_committed(checkpoint)
    offsets = None if done is None else batch_offsets(checkpoint, done)
    return offsets[place] if offsets and place < len(offsets) else None


def last_committed(checkpoint: CheckpointPath) -> int | None:
    """Return Spark's number of the last batch that it noted as done, or None before the first one."""
    try:
        done = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return None
    return max(done, default=None)


def last_batch(checkpoint: CheckpointPath, pipeline: str) -> LastBatch | None:
    """Return the last batch that the pipeline committed from this checkpoint; None if the checkpoint has no note."""
    try:
        note = json.loads((checkpoint / LAST_BATCH).read_text())
        return LastBatch(note["epoch"], note["txid"], note["attempt"]) if note["pipeline"] == pipeline else None
    except (OSError, ValueError, KeyError):
        return None


def note_batch(checkpoint: CheckpointPath, batch: Batch) -> None:
    """Note a committed batch in its checkpoint, so that a ledger restored to an older one is noticed; see epochs.py."""
    note = {"pipeline": batch.pipeline, **LastBatch(batch.epoch, batch.txid, batch.attempt)._asdict()}
    try:
        write_whole(checkpoint / LAST_BATCH, json.dumps(note))
    except (OSError, CheckpointUnreachableError) as error:
        # Only logged, because the batch is committed, and an older note only detects less.
        logger.warning("checkpoint %s: %s cannot be written: %s", checkpoint, LAST_BATCH, error)


def shadow_checkpoint(checkpoint: CheckpointPath) -> CheckpointPath:
    """Return the checkpoint folder of a reprocess, next to the pipeline's own."""
    return checkpoint.with_name(f"{checkpoint.name}.reprocess")


def kept_checkpoint(checkpoint: CheckpointPath) -> CheckpointPath:
    """Return the folder that keeps the checkpoint which a reprocess has replaced, next to the pipeline's own."""
    return checkpoint.with_name(f"{checkpoint.name}.kept")


def settle(conn: psycopg.Connection, pipeline: str, checkpoint: CheckpointPath) -> None:
    """Move the checkpoint that the ledger is bound to into its place after a swap or a roll-back; drop expired states.

    The caller holds the pipeline. Safe to call again after a crash. Nothing is moved if none of the folders is the one
    that the ledger is bound to.
    """
    kept = Kept(conn, pipeline)
    kept.drop_expired()
    with conn.transaction():
        record = reprocess.current(conn, pipeline)
        bound = BatchLedger(conn, pipeline).checkpoint_id()
        if bound is None:
            return
        _settle_folders(checkpoint, bound, keeps=kept.until() is not None)
        if record is not None and record.phase in AFTER_MOVE and checkpoint_id(checkpoint) == bound:
            reprocess.enter(conn, pipeline, record.phase, AFTER_MOVE[record.phase])


def _settle_folders(checkpoint: CheckpointPath, bound: str, *, keeps: bool) -> None:
    shadow, kept = shadow_checkpoint(checkpoint), kept_checkpoint(checkpoint)
    replaced = checkpoint.with_name(f"{checkpoint.name}.replaced")
    # A swap keeps the checkpoint that it replaces for a roll-back; a roll-back removes the one that it replaces.
    for arriving, leaving in ((shadow, kept), (kept, replaced)):
        if checkpoint_id(arriving) == bound:
            if checkpoint.exists():
                move(checkpoint, leaving)
            move(arriving, checkpoint)
    if checkpoint_id(checkpoint) == bound:
        remove(replaced)
        if not keeps:
            remove(kept)


def remove_shadow_checkpoint(checkpoint: CheckpointPath, bound: str | None) -> None:
    """Remove the folder of a reprocess, unless the ledger is bound to it."""
    shadow = shadow_checkpoint(checkpoint)
    if bound is None or checkpoint_id(shadow) != bound:
        remove(shadow)


def checkpoint_id(checkpoint: CheckpointPath) -> str | None:
    """Return the id of the query that a checkpoint belongs to; None if there is no checkpoint."""
    try:
        return str(json.loads((checkpoint / MARK).read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None
