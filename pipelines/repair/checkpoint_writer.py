"""Writes a checkpoint folder that Spark resumes from, with the source offsets that the ledger has.

    metadata           the query's id
    offsets/<batch>    the offset of each source after the batch
    commits/<batch>    the batch is done
    sources/<place>    the files that a source of files has read

Seen with Spark 4.3: after batch n was committed, Spark reads the offsets of n and n - 1 and the commit of n. It uses
the session's settings if the offsets file has none. A batch with offsets but no commit runs again with the same input.
Kafka's and Python's readers need no files of their own.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidegauge.pipelines.checkpoint.disk import sync_folder, sync_path
from tidegauge.pipelines.checkpoint.files import MARK, CheckpointPath, compact_json, move, remove
from tidegauge.pipelines.sources.source import ListedSource, Source
from tidegauge.state_backends.repair.resume import Files, Offsets, ResumePoint


def write_checkpoint(
    checkpoint: CheckpointPath, point: ResumePoint, sources: Sequence[Source], read: Sequence[Mapping[int, Files]]
) -> CheckpointPath | None:
    """Replace a checkpoint folder with one that resumes from `point`. Returns where the old one was moved, if any.

    read: per source, the files that each batch has read, by txid.
    Safe to call again after a crash. Nothing else may use the folder.
    """
    made, kept = (checkpoint.with_name(f"{checkpoint.name}.{word}") for word in ("restored", "before-restore"))
    remove(made)
    _write_batches(made, point, sources)
    for place, (source, files) in enumerate(zip(sources, read, strict=True)):
        if isinstance(source, ListedSource):
            source.restore(made / "sources" / str(place), place, point, files)
    # Before the move, so that a power cut cannot leave an incomplete checkpoint in its place.
    sync_folder(made)
    had_one = checkpoint.exists()
    if had_one:
        move(checkpoint, kept)
    move(made, checkpoint)
    if isinstance(checkpoint, Path):
        sync_path(checkpoint.parent)
    return kept if had_one else None


def _write_batches(folder: CheckpointPath, point: ResumePoint, sources: Sequence[Source]) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / MARK).write_text(json.dumps({"id": point.checkpoint_id}))
    ends = {point.batch_id - 1: point.before, point.batch_id: point.offsets, point.batch_id + 1: point.opened}
    for batch_id, offsets in ends.items():
        if batch_id >= 0 and offsets is not None:
            (folder / "offsets" / str(batch_id)).write_text(_offsets(offsets, point, sources))
    if point.batch_id >= 0:
        (folder / "commits" / str(point.batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def _offsets(offsets: Offsets, point: ResumePoint, sources: Sequence[Source]) -> str:
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": int(point.batch_time.timestamp() * 1000), "conf": {}}
    ends = (
        "-" if offset is None else source.offset_text(offset) for source, offset in zip(sources, offsets, strict=True)
    )
    return "\n".join(["v1", compact_json(metadata), *ends])
