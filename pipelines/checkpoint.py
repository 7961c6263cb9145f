"""Spark's checkpoint folder of a pipeline: the source offsets of its batches, and the folder of a reprocess."""

import json
import shutil
from pathlib import Path
from typing import Any


def batch_offsets(checkpoint: Path, batch_id: int) -> Any:
    """Return the offset of each source at the end of a batch, or None if the file cannot be read or parsed."""
    try:
        _version, _metadata, *offsets = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    except (OSError, ValueError):
        return None
    return [None if offset == "-" else json.loads(offset) for offset in offsets]


def committed_offset(checkpoint: Path, place: int = 0) -> dict[str, Any] | None:
    """Return the offset at the end of the last batch that Spark noted as done, or None before the first one.

    place: the number of the source; Spark numbers the query's sources in the checkpoint.
    """
    try:
        done = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return None
    offsets = batch_offsets(checkpoint, max(done)) if done else None
    return offsets[place] if offsets and place < len(offsets) else None


def shadow_checkpoint(checkpoint: Path) -> Path:
    """Return the checkpoint folder of a reprocess, next to the pipeline's own."""
    return checkpoint.with_name(f"{checkpoint.name}.reprocess")


def promote(checkpoint: Path, bound: str | None) -> None:
    """Replace the pipeline's folder by that of a reprocess, if the ledger is bound to the latter.

    bound: the checkpoint id in the ledger. If this is killed, the next call finishes it.
    """
    shadow, replaced = shadow_checkpoint(checkpoint), checkpoint.with_name(f"{checkpoint.name}.replaced")
    if bound is None or _query_id(shadow) != bound:
        return
    if checkpoint.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        checkpoint.rename(replaced)
    shadow.rename(checkpoint)
    shutil.rmtree(replaced, ignore_errors=True)


def _query_id(checkpoint: Path) -> str | None:
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None
