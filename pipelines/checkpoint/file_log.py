"""Spark's log of the files that its batches have taken, in the checkpoint: `sources/<place>/<number>`.

A line has a path, the file's time of modification when it was planned, and the entry's number. Every tenth entry is a
`.compact` one, which repeats all before it; Spark deletes those after a while. An entry's number is the offset
(`logOffset`) that batches refer to. It runs apart from the numbers of the batches once a checkpoint has gone back.
"""

import json
import mmap
import string
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlparse

from tidegauge.pipelines.checkpoint.files import CheckpointPath, StorePath, compact_json
from tidegauge.state_backends.repair.resume import ResumePoint

# Path to time of modification, in ms since 1970.
Files = dict[Path, int]

# As in Spark's setting `spark.sql.streaming.fileSource.log.compactInterval`.
COMPACT_INTERVAL = 10
COMPACT = ".compact"

# What java.net.URI leaves as it is in a path.
PLAIN = frozenset(string.ascii_letters + string.digits + "-_.!~'()*,;:$&+=@/")


class ProcessedFiles:
    """The names of the files that batches of one checkpoint have taken, from Spark's log in the checkpoint.

    The log has a file per batch, and sometimes a `.compact` one that repeats all before it. Each is read once, so
    asking every second stays cheap.
    """

    def __init__(self, checkpoint: CheckpointPath, place: int = 0) -> None:
        self._log = checkpoint / "sources" / str(place)
        self._names: set[str] = set()
        self._read_up_to = -1

    def names(self) -> set[str]:
        """Return all names logged so far; empty before the first batch."""
        entries = log_entries(self._log)
        for batch_id, path in entries:
            if batch_id > self._read_up_to:
                self._names |= _names(path)
        self._read_up_to = max([self._read_up_to, *(batch_id for batch_id, _ in entries)])
        return self._names


def log_entries(folder: CheckpointPath) -> list[tuple[int, CheckpointPath]]:
    """Return the entries of one of Spark's logs with their numbers, the newest last; none of a folder that is gone."""
    if not folder.is_dir():
        return []
    paths = {path.name: path for path in folder.iterdir()}
    numbers = ((name.removesuffix(COMPACT), name) for name in paths)
    return [(number, paths[name]) for number, name in sorted((int(n), name) for n, name in numbers if n.isdecimal())]


def _names(path: CheckpointPath) -> set[str]:
    return {path_of(line["path"]).name for line in _lines(path)}


def path_of(file: str) -> Path:
    """Return the path that a URI of Spark names, as in the log and in the column of a row's file."""
    return Path(unquote(urlparse(file).path))


def logged_files(log: CheckpointPath, first: int, last: int) -> Files | None:
    """Return the files of the entries `first` to `last`, or None if the log lacks one of them."""
    files: Files = {}
    for number in range(first, last + 1):
        holder = _holder(log, number)
        if holder is None:
            return None
        files |= {path_of(line["path"]): line["timestamp"] for line in _lines_of(holder, number)}
    return files


def taken_files(log: CheckpointPath, last: int) -> Files:
    """Return the files of all entries up to `last`, as far as the log has them; a driver may be writing it."""
    files: Files = {}
    for _number, path in log_entries(log):
        files |= {path_of(line["path"]): line["timestamp"] for line in _lines(path) if line["batchId"] <= last}
    return files


def _lines(path: CheckpointPath) -> Iterator[dict[str, Any]]:
    try:
        _version, *lines = path.read_text("utf-8").split("\n")
    except FileNotFoundError:  # Spark has compacted it since; the compact one has its lines
        return
    yield from (json.loads(line) for line in lines if line)


def modified_now(path: Path, planned: int) -> int:
    """Return when a file was last modified, in ms since 1970; as planned if the file is gone."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return planned


def log_number(offset: Any) -> int:
    """Return the entry at which an offset of Spark's file source ends; -1 before the first."""
    return -1 if offset is None else int(offset["logOffset"])


def _holder(log: CheckpointPath, number: int) -> CheckpointPath | None:
    """Return the file that has the entry: its own, or the first compact one after it."""
    own = log / str(number)
    if own.exists():
        return own
    later = [path for each, path in log_entries(log) if each >= number and path.name.endswith(COMPACT)]
    return later[0] if later else None


def _lines_of(holder: CheckpointPath, number: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of one entry. They are in order, so a compact one of a million lines is read from its end."""
    for text in _lines_from_end(holder):
        line = json.loads(text)
        if line["batchId"] < number:
            return
        if line["batchId"] == number:
            yield line


def _lines_from_end(holder: CheckpointPath) -> Iterator[bytes]:
    """Yield all lines but the first, which has the format's version."""
    if isinstance(holder, StorePath):
        yield from _from_end(holder.read_bytes())
        return
    with holder.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        yield from _from_end(text)


def _from_end(text: bytes | mmap.mmap) -> Iterator[bytes]:
    end = len(text)
    while (begin := text.rfind(b"\n", 0, end) + 1) > 0:
        if begin < end:
            yield text[begin:end]
        end = begin - 1


def file_uri(path: Path) -> str:
    """Return the URI by which Spark's log names a file, quoted as java.net.URI does it."""
    return "file://" + "".join(map(_quoted, str(path.absolute())))


def write_log(log: CheckpointPath, entries: Mapping[int, Files]) -> None:
    """Write a log that has read these files. entries: number to files.

    All up to the last compact entry are in that one; Spark wants each entry after it, empty or not.
    """
    log.mkdir(parents=True)
    last = max(entries, default=-1)
    compact = (last + 1) // COMPACT_INTERVAL * COMPACT_INTERVAL - 1
    if compact >= 0:
        numbers = [number for number in sorted(entries) if number <= compact]
        (log / f"{compact}{COMPACT}").write_text(_text(numbers, entries), "utf-8")
    for number in range(compact + 1, last + 1):
        (log / str(number)).write_text(_text([number], entries), "utf-8")


def restore_log(
    log: CheckpointPath, place: int, point: ResumePoint, read: Mapping[int, Mapping[str, int]], folder: Path
) -> None:
    """Write the log of a checkpoint that resumes from `point`.

    place: which of the query's sources this is. read: what each batch has read, by txid: path in `folder` to time of
    modification.
    """
    end, before = log_number(point.offsets[place]), log_number(point.before[place])
    entries: dict[int, Files] = {end: {}}
    for txid, files in read.items():
        number = before if txid < point.txid else end
        if txid > point.txid and point.opened is not None:
            number = log_number(point.opened[place])
        entries.setdefault(number, {}).update({folder / name: at for name, at in files.items()})
    write_log(log, entries)


def _text(numbers: Iterable[int], entries: Mapping[int, Files]) -> str:
    lines = (
        compact_json({"path": file_uri(path), "timestamp": modified, "batchId": number})
        for number in numbers
        for path, modified in entries.get(number, {}).items()
    )
    return "\n".join(["v1", *lines])


def _quoted(character: str) -> str:
    is_plain = character.isprintable() and not character.isspace() if not character.isascii() else character in PLAIN
    return character if is_plain else quote(character)
