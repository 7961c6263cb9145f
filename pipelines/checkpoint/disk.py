"""Checkpoint on disk: Spark renames the files of its checkpoint into place without waiting for the disk.

A power cut may therefore lose the newest files, or leave them empty, although the batches that they plan were counted.
So a batch's plan is synced to disk before the ledger relies on it. A file that is torn at the next start is newer than
that and is set aside: Spark plans its batch again, and the ledger compares the input. Spark's notes that batches are
done are not synced, because a batch without its note is only replayed, and the ledger recognizes it.
"""

import json
import logging
import math
import os
import struct
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tidegauge.pipelines.checkpoint.file_log import log_entries, log_number
from tidegauge.pipelines.checkpoint.files import MARK, CheckpointPath, StorePath
from tidegauge.pipelines.checkpoint.folder import batch_offsets
from tidegauge.state_backends.errors import CheckpointTornError

# Added to the name of a file that is set aside; Spark reads only names that are numbers.
TORN, UNPLANNED = ".torn", ".unplanned"

SYNCS = 8  # a batch's plan is four files and two folders

FORMAT = "v1"  # the first line of plans, notes and log entries

# Hadoop's checksum file has a header of 8 bytes, then the CRC-32 of each chunk of the file.
CHUNK_BYTES = 512

logger = logging.getLogger(__name__)


class CheckpointDisk:
    """Syncs the plans that Spark has put into a checkpoint to disk.

    For a checkpoint in a store it does nothing, because a store keeps each file once it is closed.
    """

    def __init__(self, checkpoint: CheckpointPath) -> None:
        self._checkpoint = checkpoint
        self._on_disk: set[str] = set()

    def sync(self) -> None:
        """Return once every plan, the entries of the sources' logs, the metadata and their folders are on disk.

        Only files that are new since the last call are synced. Measured: see docs/adr/batches.md.
        """
        if isinstance(self._checkpoint, StorePath):
            return
        folders = _folders(self._checkpoint)
        entries = {entry.path: str(folder) for folder in folders for entry in os.scandir(folder)}
        new = entries.keys() - self._on_disk
        changed = {entries[path] for path in new} | (set() if self._on_disk else {str(self._checkpoint.parent)})
        # In parallel, because the file system then commits most of them at once.
        with ThreadPoolExecutor(SYNCS) as pool:
            list(pool.map(_sync_if_there, sorted(new)))
            list(pool.map(_sync_if_there, sorted(changed)))
        self._on_disk = set(entries)


def _folders(checkpoint: Path) -> list[Path]:
    sources = checkpoint / "sources"
    logs = sources.iterdir() if sources.is_dir() else []
    return [each for each in (checkpoint, checkpoint / "offsets", sources, *logs) if each.is_dir()]


def sync_path(path: Path | str) -> None:
    """Return once a file, or a folder's list of names, is on disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: CheckpointPath) -> None:
    """Return once a local folder and everything in it is on disk. Does nothing for a folder in a store."""
    if isinstance(folder, Path):
        for path in [*folder.rglob("*"), folder]:
            sync_path(path)


def _sync_if_there(path: str) -> None:
    # A file may be gone, because Spark deletes old files and renames temporary ones at the same time.
    with suppress(FileNotFoundError):
        sync_path(path)


def set_aside_torn(checkpoint: CheckpointPath) -> None:
    """Rename the newest plan, note or log entry of a checkpoint if a power cut has left it empty or cut off.

    A plan is renamed with the log entry that it refers to, and a note with its plan. Call it before Spark opens the
    folder. Raises CheckpointTornError if any other file is torn, because an older batch may have been counted, and
    later batches are planned on top of it.
    """
    metadata = checkpoint / MARK
    if metadata.exists() and not _is_whole(metadata, lines=1):
        raise _torn(metadata, "names the query that the checkpoint belongs to")
    plans, notes = checkpoint / "offsets", checkpoint / "commits"
    _set_aside_newest(plans, lines=3)  # format, settings, an offset per source
    for _place, log in log_entries(checkpoint / "sources"):
        _set_aside_newest(log, lines=1)  # format, then a line per file
    if _lacks_its_log(checkpoint):
        for _batch_id, plan in log_entries(plans)[-1:]:
            _set_aside(plan, _checksum(plan))
        if _lacks_its_log(checkpoint):
            raise _torn(checkpoint / "sources", "lacks the files of more than the newest batch")
    newest = max((batch_id for batch_id, _plan in log_entries(plans)), default=-1)
    for batch_id, note in log_entries(notes):
        # A note without a plan is set aside too, because Spark would otherwise run the previous batch again.
        if not _set_aside_if_torn(note, lines=2) and batch_id > newest:  # format, watermark
            _set_aside(note, _checksum(note))


def set_aside_unplanned(checkpoint: CheckpointPath, places: Iterable[int]) -> None:
    """Rename log entries that no planned batch refers to, so that Spark sees their files as new again.

    places: those of the sources of files. Spark writes the entry before the plan, so a driver that is killed in between
    leaves such an entry. At the next start the source would give its files to the first batch, even if the source has
    to wait. Call it after `set_aside_torn`.
    """
    plans = log_entries(checkpoint / "offsets")
    offsets = batch_offsets(checkpoint, plans[-1][0]) if plans else []
    if offsets is None:
        return  # the plan cannot be read now, and Spark will not continue without it either
    for place in places:
        planned = log_number(offsets[place] if place < len(offsets) else None)
        for number, entry in log_entries(checkpoint / "sources" / str(place)):
            if number > planned:
                logger.warning("%s lists files that are in no planned batch: added %s to its name", entry, UNPLANNED)
                _rename(UNPLANNED, entry, _checksum(entry))


def _lacks_its_log(checkpoint: CheckpointPath) -> bool:
    """Return whether the newest plan takes files from a log entry that does not exist."""
    for batch_id, _plan in log_entries(checkpoint / "offsets")[-1:]:
        for place, offset in enumerate(batch_offsets(checkpoint, batch_id) or []):
            if isinstance(offset, dict) and "logOffset" in offset:
                entries = log_entries(checkpoint / "sources" / str(place))
                if log_number(offset) > max((number for number, _entry in entries), default=-1):
                    return True
    return False


def _set_aside_newest(folder: CheckpointPath, lines: int) -> None:
    entries = [path for _number, path in log_entries(folder)]
    for path in entries[:-1]:
        if not path.stat().st_size:
            raise _torn(path, "is not the newest of its folder")
    for path in entries[-1:]:
        _set_aside_if_torn(path, lines)


def _set_aside_if_torn(path: CheckpointPath, lines: int) -> bool:
    checksum = _checksum(path)
    if not _is_whole(path, lines):
        _set_aside(path, checksum)
        return True
    if checksum is not None and checksum.exists() and _sums(path) is None:
        _set_aside(checksum)
    return False


def _is_whole(path: CheckpointPath, lines: int) -> bool:
    text, sums = path.read_bytes(), _sums(path)
    if sums is not None:
        return sums == [zlib.crc32(text[at : at + CHUNK_BYTES]) for at in range(0, len(text), CHUNK_BYTES)]
    found = text.decode(errors="replace").splitlines()
    # Spark writes no log entry without files, but a checkpoint that was rebuilt from the ledger may have one.
    checksum = _checksum(path)
    made = found == [FORMAT] and (checksum is None or not checksum.exists())
    return len(found) >= lines and (made or _is_json(found[-1]))


def _sums(path: CheckpointPath) -> list[int] | None:
    """Return the checksum of each chunk from Hadoop's checksum file; None if it is missing or has another length."""
    checksum, chunks = _checksum(path), math.ceil(path.stat().st_size / CHUNK_BYTES)
    if checksum is None:
        return None
    try:
        return list(struct.unpack(f">8x{chunks}I", checksum.read_bytes()))
    except (FileNotFoundError, struct.error):
        return None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return line == "-"  # the offset of a source that has none yet
    return True


def _checksum(path: CheckpointPath) -> Path | None:
    """Return the path of Hadoop's checksum of a local file; None in a store, which checks its files itself."""
    return path.with_name(f".{path.name}.crc") if isinstance(path, Path) else None


def _set_aside(*paths: CheckpointPath | None) -> None:
    for path in paths:
        if path is not None and path.exists():
            logger.warning("%s is empty or cut off, or belongs to a file that is: added %s to its name", path, TORN)
            _rename(TORN, path)


def _rename(suffix: str, *paths: CheckpointPath | None) -> None:
    for path in paths:
        if path is not None and path.exists():
            path.replace(path.with_name(path.name + suffix))  # type: ignore[arg-type]


def _torn(path: CheckpointPath, role: str) -> CheckpointTornError:
    return CheckpointTornError(
        f"checkpoint file {str(path)!r} is empty or cut off, and {role}; restore a whole copy of the checkpoint, or "
        "run with --reprocess to rebuild the states from the start of the input"
    )
