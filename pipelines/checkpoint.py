"""Spark's checkpoint folder: where the source stood at a batch, and whose turn it is after a reprocess."""

import json
import shutil
from pathlib import Path
from typing import Any


def batch_offsets(checkpoint: Path, batch_id: int) -> Any:
    """Return the source offsets of a batch as Spark noted them, or None where the folder is out of reach."""
    try:
        _version, _metadata, *offsets = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    except (OSError, ValueError):
        return None
    return [None if offset == "-" else json.loads(offset) for offset in offsets]


def shadow_checkpoint(checkpoint: Path) -> Path:
    """Return the folder of a reprocess, beside the pipeline's own."""
    return checkpoint.with_name(f"{checkpoint.name}.reprocess")


def promote(checkpoint: Path, bound: str | None) -> None:
    """Put a reprocess's folder in place of the pipeline's, if it is the one that the ledger is bound to by now.

    Killed anywhere it is finished by the next call.
    """
    successor, replaced = shadow_checkpoint(checkpoint), checkpoint.with_name(f"{checkpoint.name}.replaced")
    if bound is None or _query_id(successor) != bound:
        return
    if checkpoint.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        checkpoint.rename(replaced)
    successor.rename(checkpoint)
    shutil.rmtree(replaced, ignore_errors=True)


def _query_id(checkpoint: Path) -> str | None:
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError):
        return None


# How far the committed batches of a query have read a source, from Spark's notes in the checkpoint.


def committed_offset(checkpoint: Path, place: int = 0) -> dict[str, Any] | None:
    """Return where the last batch that Spark noted as done ends, or None before the first.

    place: which of the query's sources is meant.
    """
    try:
        done = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return None
    offsets = batch_offsets(checkpoint, max(done)) if done else None
    return offsets[place] if offsets and place < len(offsets) else None
