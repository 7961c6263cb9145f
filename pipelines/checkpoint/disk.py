"""Checkpoint on disk: Spark renames the files of its checkpoint into place without waiting for the disk.

So a power cut may take the newest of them, or leave them empty, although what they plan was counted. A batch's plan is
therefore written to disk before the ledger counts on it. What is torn at the next start is newer than that, so it is
set aside: Spark plans that batch again, and the ledger compares what it holds. Spark's notes that batches are done are
not written: without its note, a batch comes again that the ledger knows.
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
    """Writes the plans that Spark has put into a checkpoint to disk.

    A store keeps what has been closed in it, as far as it can be told to, so there is nothing to write.
    """

    def __init__(self, checkpoint: CheckpointPath) -> None:
        self._checkpoint = checkpoint
        self._on_disk: set[str] = set()

    def sync(self) -> None:
        """Return once every plan, the entries of the sources' logs and the metadata are on disk, and their folders.

        Only what is new since the last call is written. Measured: see docs/adr/batches.md.
        """
        if isinstance(self._checkpoint, StorePath):
            return
        folders = _folders(self._checkpoint)
        entries = {entry.path: str(folder) for folder in folders for entry in os.scandir(folder)}
        new = entries.keys() - self._on_disk
        changed = {entries[path] for path in new} | (set() if self._on_disk else {str(self._checkpoint.parent)})
        # Side by side: the file system then commits most of them at once.
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
    """Return once a folder of this machine, with all that is in it, is on disk."""
    if isinstance(folder, Path):
        for path in [*folder.rglob("*"), folder]:
            sync_path(path)


def _sync_if_there(path: str) -> None:
    # Spark deletes old files and renames temporary ones meanwhile.
    with suppress(FileNotFoundError):
        sync_path(path)


def set_aside_torn(checkpoint: CheckpointPath) -> None:
    """Rename the newest plan, note or log entry of a checkpoint if a power cut has left it empty or cut off.

    With a log entry goes the plan that rests on it, and with a plan its note. Call it before Spark opens the folder.
    Raises CheckpointTornError if anything else is torn: an older batch may have been counted, and those after it are
    planned on top of it.
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
        # Spark would run the batch before again if a note had no plan.
        if not _set_aside_if_torn(note, lines=2) and batch_id > newest:  # format, watermark
            _set_aside(note, _checksum(note))


def set_aside_unplanned(checkpoint: CheckpointPath, places: Iterable[int]) -> None:
    """Rename the log entries of files that no batch was planned with, so that those files are new to Spark again.

    places: of sources of files. Spark writes the entry before the plan, and a driver killed in between leaves it; at
    the next start the source would give it to the first batch, although it waits. Call it after `set_aside_torn`.
    """
    plans = log_entries(checkpoint / "offsets")
    offsets = batch_offsets(checkpoint, plans[-1][0]) if plans else []
    if offsets is None:
        return  # it cannot be read now, and Spark will not go on without it
    for place in places:
        planned = log_number(offsets[place] if place < len(offsets) else None)
        for number, entry in log_entries(checkpoint / "sources" / str(place)):
            if number > planned:
                logger.warning("%s has files that no batch was planned with: added %s to its name", entry, UNPLANNED)
                _rename(UNPLANNED, entry, _checksum(entry))


def _lacks_its_log(checkpoint: CheckpointPath) -> bool:
    """Return whether the newest plan takes files from an entry that a source's log does not reach."""
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
    # Spark writes no log entry without files, but a checkpoint that was made from the ledger may have one.
    checksum = _checksum(path)
    made = found == [FORMAT] and (checksum is None or not checksum.exists())
    return len(found) >= lines and (made or _is_json(found[-1]))


def _sums(path: CheckpointPath) -> list[int] | None:
    """Return what Hadoop's checksum file says of each chunk, None if there is none or it has another length."""
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
    """Return where Hadoop keeps the checksum of a file of this machine. Stores check their files themselves."""
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
