"""How far the committed batches of a query have read a source, from Spark's notes in the checkpoint."""

from pathlib import Path
from typing import Any

from pipelines.checkpoint import batch_offsets


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
