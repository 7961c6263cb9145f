"""What a runner reads in Spark's checkpoint folder: where the source stood at a batch."""

import json
from pathlib import Path
from typing import Any


def batch_offsets(checkpoint: Path, batch_id: int) -> Any:
    """Return the source offsets of a batch as Spark noted them, or None where the folder is out of reach."""
    try:
        _version, _metadata, *offsets = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    except (OSError, ValueError):
        return None
    return [None if offset == "-" else json.loads(offset) for offset in offsets]
