"""Which files a query has taken, read from Spark's own log in the checkpoint.

The log is a file per batch, and now and then a `.compact` one that repeats all before it. Reading goes on from where
it stopped, so asking every second stays cheap.
"""

import json
from pathlib import Path
from urllib.parse import unquote, urlparse


class ProcessedFiles:
    """The names of the files that batches of one checkpoint have taken."""

    def __init__(self, checkpoint: Path, place: int = 0) -> None:
        self._log = checkpoint / "sources" / str(place)
        self._names: set[str] = set()
        self._read_up_to = -1

    def names(self) -> set[str]:
        """Return all names noted so far; empty before the first batch."""
        entries = sorted(self._entries())
        for batch_id, path in entries:
            if batch_id > self._read_up_to:
                self._names |= _names(path)
        self._read_up_to = max([self._read_up_to, *(batch_id for batch_id, _ in entries)])
        return self._names

    def _entries(self) -> list[tuple[int, Path]]:
        if not self._log.is_dir():
            return []
        named = ((path.name.removesuffix(".compact"), path) for path in self._log.iterdir())
        return [(int(number), path) for number, path in named if number.isdecimal()]


def _names(path: Path) -> set[str]:
    try:
        _version, *lines = path.read_text().splitlines()
    except FileNotFoundError:  # Spark has compacted it away meanwhile; the compact one has its names
        return set()
    return {Path(unquote(urlparse(json.loads(line)["path"]).path)).name for line in lines if line}
