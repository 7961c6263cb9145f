"""Micro-batches without Spark: its streaming interface and checkpoint, as far as the product's driver uses them.

A JVM takes ten seconds to start and half a second for a small batch. So that hundreds of faults fit into half an hour,
most of them run on this engine: the driver, its session, the query run, the batch runner, the ledger, the backends and
the tasks are the product's own; what reads files, plans batches and hands partial aggregates to tasks is here. The
checkpoint has Spark's files in Spark's order (`offsets`, `sources`, `commits`, `metadata`), so a driver with Spark
could go on from it. As Spark does, a batch runs in a thread of its own.

An opaque source plans a batch again at each attempt and so brings fewer, more or other files; Spark's own file source
never does.
"""

import json
import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import StreamingQueryException

from tests.soak.executors import Executors
from tests.soak.points import Points
from tests.soak.transfers import TransferFiles, partials
from tidegauge.pipelines.batch.tasks import MergeTask
from tidegauge.pipelines.checkpoint.file_log import ProcessedFiles, logged_files
from tidegauge.pipelines.checkpoint.files import checkpoint_folder
from tidegauge.state_backends.spec.state_spec import StateSpec

POLL_SECONDS = 0.15
# Each state is written by so many tasks, which hold different keys.
TASKS = 2
OFFSETS_METADATA = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})


class Session:
    """Takes the place of a SparkSession: makes streaming frames, and runs the tasks of their batches."""

    def __init__(self) -> None:
        self.executors = Executors()

    def frame(self, source: TransferFiles) -> "Frame":
        return Frame(source, self)

    def run(self, tasks: list[tuple[MergeTask, pa.RecordBatch]]) -> list[int]:
        return self.executors.run(tasks)

    def stop(self) -> None: ...


@dataclass
class Frame:
    """A streaming DataFrame of files; `files` are those of one batch."""

    source: TransferFiles
    session: Session
    files: list[Path] = field(default_factory=list)

    @property
    def writeStream(self) -> "Writer":  # noqa: N802  Spark's name
        return Writer(self)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for file in self.files for line in file.read_text().splitlines()]

    def where(self, condition: str) -> "Frame":
        return self


@dataclass
class Writer:
    """Spark's DataStreamWriter."""

    frame: Frame
    checkpoint: Path = Path()
    once: bool = False

    def queryName(self, name: str) -> "Writer":  # noqa: N802
        return self

    def option(self, name: str, value: str) -> "Writer":
        self.checkpoint = checkpoint_folder(value) if name == "checkpointLocation" else self.checkpoint
        return self

    def foreachBatch(self, function: Callable[[Any, int], None]) -> "Writer":  # noqa: N802
        self.function = function
        return self

    def trigger(self, *, availableNow: bool = False, **others: Any) -> "Writer":  # noqa: N803
        self.once = availableNow
        return self

    def start(self) -> "Query":
        return Query(self)


class Query:
    """Spark's StreamingQuery: plans and runs batches in its own thread until it is stopped."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._points = writer, Points.of_environment()
        self._log = CheckpointLog(writer.checkpoint, writer.frame.source, replans=writer.frame.source.spout == "opaque")
        self.id = self._log.query_id()
        self.lastProgress: Any = None
        self.recentProgress: list[Any] = []
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="micro-batches", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802
        return self._thread.is_alive()

    def awaitTermination(self, seconds: float | None = None) -> bool:  # noqa: N802
        self._thread.join(seconds)
        if self._failure is not None:
            raise StreamingQueryException(str(self._failure)) from self._failure
        return not self.isActive

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and (self._run_next() or not self._writer.once):
                continue
        except Exception as error:
            traceback.print_exc()
            self._failure = error

    def _run_next(self) -> bool:
        """Run the next batch, if there is input for one."""
        batch_id = self._log.plan()
        if batch_id is None:
            self._stopping.wait(0 if self._writer.once else POLL_SECONDS)
            return False
        self._points.passes("planned")
        started = time.monotonic()
        self._writer.function(replace(self._writer.frame, files=self._log.files(batch_id)), batch_id)
        self._points.passes("published")
        self._log.note_done(batch_id)
        self._report(batch_id, time.monotonic() - started)
        return True

    def _report(self, batch_id: int, seconds: float) -> None:
        self.lastProgress = SimpleNamespace(
            batchId=batch_id,
            durationMs={"triggerExecution": round(seconds * 1000), "addBatch": round(seconds * 1000)},
            numInputRows=1,
            inputRowsPerSecond=None,
            processedRowsPerSecond=None,
            sources=[],
        )
        self.recentProgress = [*self.recentProgress[-20:], self.lastProgress]


class CheckpointLog:
    """Spark's checkpoint of a query over one file source. replans: whether a replay looks for its input again."""

    def __init__(self, folder: Path, source: TransferFiles, *, replans: bool) -> None:
        self.folder, self.source, self._replans = folder, source, replans
        for name in ("offsets", "commits", "sources/0"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def query_id(self) -> str:
        metadata = self.folder / "metadata"
        if not metadata.exists():
            _write(metadata, json.dumps({"id": str(uuid4())}))
        return json.loads(metadata.read_text())["id"]

    def plan(self) -> int | None:
        """Return the batch to run: the last planned one as long as it is not done, else a new one; None without input.

        The files of a batch are logged before its offsets are, as Spark does.
        """
        planned, done = _newest(self.folder / "offsets"), _newest(self.folder / "commits")
        if planned > done:
            return self._plan_again(planned)
        return self._plan_new(planned + 1)

    def files(self, batch_id: int) -> list[Path]:
        """Return the files of a planned batch."""
        first, last = self._log_offset(batch_id - 1) + 1, self._log_offset(batch_id)
        return list(logged_files(self._entries, first, last) or [])

    def note_done(self, batch_id: int) -> None:
        """Note that a batch is done. As with Spark, a query ends where another one has noted that before."""
        note = self.folder / "commits" / str(batch_id)
        if note.exists():
            raise RuntimeError(f"another query uses checkpoint {self.folder}: it has done batch {batch_id}")
        _write(note, 'v1\n{"nextBatchWatermarkMs":0}')

    def _plan_again(self, batch_id: int) -> int:
        mine = [self._entries / str(n) for n in range(self._log_offset(batch_id - 1) + 1, self._newest_entry() + 1)]
        # An entry that was compacted is no longer a batch's own.
        if self._replans and all(entry.exists() for entry in mine):
            for entry in mine:
                entry.unlink()
            self._log_files(self._other_files())
            self._write_offsets(batch_id)
        return batch_id

    def _other_files(self) -> list[Path]:
        """Return files for a replay: others each time, and the same for each seed."""
        count = self.folder / "replays"
        replays = int(count.read_text()) + 1 if count.exists() else 1
        _write(count, str(replays))
        chance = random.Random(f"{os.environ.get('SOAK_SEED')}-{replays}")
        candidates = self._waiting()
        return chance.sample(candidates, chance.randint(0, min(len(candidates), self.source.files_per_batch)))

    def _plan_new(self, batch_id: int) -> int | None:
        # A crash may have left files that are logged for a batch whose offsets were not written.
        if self._newest_entry() <= self._log_offset(batch_id - 1):
            waiting = self._waiting()[: self.source.files_per_batch]
            if not waiting:
                return None
            self._log_files(waiting)
        self._write_offsets(batch_id)
        return batch_id

    def _waiting(self) -> list[Path]:
        taken = ProcessedFiles(self.folder).names()
        landed = [path for path in self.source.folder.glob("*.json") if path.name not in taken]
        return sorted(landed, key=lambda path: (path.stat().st_mtime, path.name))

    def _newest_entry(self) -> int:
        names = (path.name.removesuffix(".compact") for path in self._entries.iterdir())
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _log_files(self, files: list[Path]) -> None:
        number = self._newest_entry() + 1
        entries = [
            {"path": f"file://{path}", "timestamp": path.stat().st_mtime_ns // 1_000_000, "batchId": number}
            for path in files
        ]
        # Without spaces, as Spark writes it.
        lines = [json.dumps(entry, separators=(",", ":")) for entry in entries]
        _write(self._entries / str(number), "\n".join(["v1", *lines]))

    def _write_offsets(self, batch_id: int) -> None:
        offset = json.dumps({"logOffset": self._newest_entry()})
        _write(self.folder / "offsets" / str(batch_id), f"v1\n{OFFSETS_METADATA}\n{offset}")

    def _log_offset(self, batch_id: int) -> int:
        if batch_id < 0:
            return -1
        return int(json.loads((self.folder / "offsets" / str(batch_id)).read_text().splitlines()[2])["logOffset"])

    @property
    def _entries(self) -> Path:
        return self.folder / "sources" / "0"


def apply_without_spark(runner: Any, frame: Frame, batch: Any) -> dict[str, Any]:
    """Take the place of BatchRunner._apply: give each state's partial aggregates to tasks."""
    points = Points.of_environment()
    points.passes("applying")
    context = runner._context(batch)
    tasks, fed = [], []
    for spec in runner.pipeline.specs:
        for rows in _partitions(spec, frame.rows):
            tasks.append((MergeTask(spec, context), rows))
            fed.append(spec.name)
    written = list(zip(fed, frame.session.run(tasks), strict=True))
    points.passes("applied")
    names = [spec.name for spec in runner.pipeline.specs]
    return {
        "rows_in": len(frame.rows),
        "keys_written": {name: sum(keys for state, keys in written if state == name) for name in names},
        "dead_letters": 0,
        "late": 0,
        "dropped": 0,
        "tasks": {name: {"tasks": TASKS, "largest": max(k for s, k in written if s == name)} for name in names},
        "watermark": None,
        "marks": {},
    }


def _partitions(spec: StateSpec, rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    groups = partials(spec, rows)
    for part in range(TASKS):
        mine = [group for group in groups if int(group["account"][1:]) % TASKS == part]
        yield pa.RecordBatch.from_pylist(mine, schema=_schema(spec))


def _schema(spec: StateSpec) -> pa.Schema:
    return pa.schema([("account", pa.string()), *((name, pa.int64()) for name in spec.partial_columns)])


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(text)
    draft.replace(path)
