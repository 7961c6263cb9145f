"""Spark's log of the files that its batches have read, in the checkpoint: `sources/<place>/<number>`.

A line has a path, the file's modification time when the batch was planned, and the entry's number. Every tenth entry is
a `.compact` one, which repeats all before it; Spark deletes those after a while. An entry's number is the offset
(`logOffset`) that batches refer to. It differs from the batch number after a checkpoint has been rewound.
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

# Path to modification time, in ms since 1970.
Files = dict[Path, int]

# The default of Spark's setting `spark.sql.streaming.fileSource.log.compactInterval`.
COMPACT_INTERVAL = 10
COMPACT = ".compact"

# The characters that java.net.URI does not quote in a path.
PLAIN = frozenset(string.ascii_letters + string.digits + "-_.!~'()*,;:$&+=@/")


class ProcessedFiles:
    """The names of the files that batches of one checkpoint have read, from Spark's log in the checkpoint.

    The log has a file per batch, and sometimes a `.compact` one that repeats all before it. Each is read only once, so
    that a call every second is cheap.
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
    """Return the entries of one of Spark's logs with their numbers, the newest last; empty if the folder is missing."""
    if not folder.is_dir():
        return []
    paths = {path.name: path for path in folder.iterdir()}
    numbers = ((name.removesuffix(COMPACT), name) for name in paths)
    return [(number, paths[name]) for number, name in sorted((int(n), name) for n, name in numbers if n.isdecimal())]


def _names(path: CheckpointPath) -> set[str]:
    return {path_of(line["path"]).name for line in _lines(path)}


def path_of(file: str) -> Path:
    """Return the path of a file URI as Spark writes it in the log and in the column with a row's file."""
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
    """Return the files of the entries up to `last` that the log has; a driver may be writing it at the same time."""
    files: Files = {}
    for _number, path in log_entries(log):
        files |= {path_of(line["path"]): line["timestamp"] for line in _lines(path) if line["batchId"] <= last}
    return files


def _lines(path: CheckpointPath) -> Iterator[dict[str, Any]]:
    try:
        _version, *lines = path.read_text("utf-8").split("\n")
    except FileNotFoundError:  # Spark has deleted it after compaction; the compact entry has its lines
        return
    yield from (json.loads(line) for line in lines if line)


def modified_now(path: Path, planned: int) -> int:
    """Return when a file was last modified, in ms since 1970; `planned` if the file is gone."""
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return planned


def log_number(offset: Any) -> int:
    """Return the entry at which an offset of Spark's file source ends; -1 before the first."""
    return -1 if offset is None else int(offset["logOffset"])


def _holder(log: CheckpointPath, number: int) -> CheckpointPath | None:
    """Return the file that contains the entry: its own, or the first compact one after it."""
    own = log / str(number)
    if own.exists():
        return own
    later = [path for each, path in log_entries(log) if each >= number and path.name.endswith(COMPACT)]
    return later[0] if later else None


def _lines_of(holder: CheckpointPath, number: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of one entry, from the end, because a compact file may have a million lines in order of entry."""
    for text in _lines_from_end(holder):
        line = json.loads(text)
        if line["batchId"] < number:
            return
        if line["batchId"] == number:
            yield line


def _lines_from_end(holder: CheckpointPath) -> Iterator[bytes]:
    """Yield all lines from the last to the second; the first has the format's version."""
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
    """Write a log that lists these files as read. entries: number to files.

    The last compact entry repeats all before it; after it Spark requires every entry, even an empty one.
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

    place: which of the query's sources this is. read: the files that each batch has read, by txid: path in `folder` to
    modification time.
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
