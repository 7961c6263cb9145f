"""Recount: count keys of a state again from its sources, and compare them with the committed values.

A Spark batch job reads the input of all committed batches, which the ledger records, and runs the verbs of the state on
it. It writes nothing, takes no lock and runs beside the driver. What batches add in the meantime is counted for the
same keys, up to the batch at which their rows are read. A recount therefore finds lost rows, changelog entries and
batches, and input that was never counted, whatever the cause.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegauge.pipelines.batch.input import SourceEvents
from tidegauge.pipelines.batch.key_filter import KeyFilter
from tidegauge.pipelines.checkpoint.files import CheckpointPath, StorePath, checkpoint_folder
from tidegauge.pipelines.checkpoint.folder import checkpoint_id
from tidegauge.pipelines.declare.context import BatchContext
from tidegauge.pipelines.declare.frames import Frames
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Node, PersistentAggregate
from tidegauge.pipelines.errors import InputLostError, RecountError, failure_reason
from tidegauge.pipelines.repair.key_sample import KeySample
from tidegauge.pipelines.repair.recountable import Position, check_steps, position, recountable, refused_keys
from tidegauge.pipelines.sources.source import ListedSource, RereadSource, Source, Span, listed_files
from tidegauge.state_backends.errors import FoldRangeError, ResumeError, SourceReplacedError
from tidegauge.state_backends.ledger.batch import Batch
from tidegauge.state_backends.ledger.source_input import replaced
from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.repair.audit import (
    Audit,
    Deviation,
    Place,
    are_alike,
    committed_values,
    logged_values,
    sampled_keys,
)
from tidegauge.state_backends.repair.resume import Files, ResumePoint, resume_point
from tidegauge.state_backends.schema.catalog import Catalog
from tidegauge.state_backends.schema.counted import CountedInput, first_names, rows_counted
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec

Counted = dict[Key, dict[str, Any]]


@dataclass(frozen=True)
class Input:
    """What the pipeline has read up to a batch.

    files: per source, the files of each batch, by txid. taken: per source, the files that the checkpoint lists as read.
    """

    at: Position
    point: ResumePoint
    files: Sequence[Mapping[int, Files]]
    taken: Sequence[Files]


class Recount:
    """One recount of one state. Raises RecountError with the reason if the state cannot be recounted.

    conn: in autocommit mode. spark: makes the session; called only when the state can be recounted, because a start
    takes seconds. checkpoint: Spark's folder of the pipeline.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        state: str,
        conn: psycopg.Connection,
        spark: Callable[[], SparkSession],
        checkpoint: CheckpointPath,
    ) -> None:
        self._pipeline, self._conn, self._start = pipeline, conn, spark
        self._checkpoint = checkpoint_folder(checkpoint)
        self._stored = Catalog(conn).get(state)

    def audit(self, sample: int) -> Audit:
        """Compare about `sample` keys of the source and as many of the table, each chosen at random."""
        with _reasons(self._stored.name):
            begun = self._read_input()
            fed, remarks = recountable(self._pipeline, self._stored, begun.at)
            check_steps(fed, self._spark, self._context(begun.at))
            losses = self._never_counted(begun)
            listed = sampled_keys(self._conn, self._stored, sample)
            counted = self._count(fed, None, begun, KeySample(listed, sample, self._rows()))
            keys = list(dict.fromkeys([*listed, *counted]))
            ended, places = self._read_values(begun, keys)
            if ended.at.txid > begun.at.txid:
                counted = _joined(fed.spec, counted, self._count(fed, begun, ended, KeySample(keys)))
            counted = {key: value for key, value in counted.items() if not fed.spec.is_empty(value)}
            refused = refused_keys(self._conn, self._pipeline.name, self._stored)
        compared = places["row"].keys() - refused
        if len(compared) < len(places["row"]):
            remarks.append(f"{len(places['row']) - len(compared)} keys are not compared: a batch left out some input")
        found = [
            Deviation(key, value, counted.get(key), place)
            for place, values in places.items()
            for key, value in values.items()
            if key in compared and not are_alike(fed.spec, value, counted.get(key))
        ]
        return Audit(ended.at.txid, len(compared), found, "the source", losses, remarks)

    @cached_property
    def _spark(self) -> SparkSession:
        return self._start()

    def _rows(self) -> int:
        return BACKENDS[self._stored.backend].sizes(self._conn, self._stored)[0]

    def _read_input(self) -> Input:
        at = position(self._conn, self._stored.name)
        point = resume_point(self._conn, self._pipeline.name, at.txid)
        files = listed_files(self._conn, self._pipeline.name, at.txid, enumerate(self._pipeline.sources))
        if len(point.offsets) != len(files):
            raise RecountError(f"pipeline {self._pipeline.name!r}: its sources are not the ones that it was fed from")
        return Input(at, point, files, self._in_checkpoint(point))

    def _read_values(self, begun: Input, keys: Sequence[Key]) -> tuple[Input, dict[Place, dict[Key, Any]]]:
        """Return the keys' values in rows and changelog, and the input up to the batch that these values belong to."""
        # One snapshot, so that rows, changelog and ledger are all as of the same batch.
        with self._conn.transaction():
            self._conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            now = self._read_input()
            if (now.at.epoch, now.at.fed_after) != (begun.at.epoch, begun.at.fed_after) or now.at.txid < begun.at.txid:
                raise RecountError(f"state {self._stored.name!r}: was rewound or swapped during the recount; try again")
            asked = (self._conn, self._stored, keys, now.at.txid, now.at.batch_time)
            logged = logged_values(*asked) if self._stored.changelog else {}
            return now, {"row": committed_values(*asked), "changelog": logged}

    def _never_counted(self, given: Input) -> list[str]:
        """Report the files that the checkpoint lists as read by committed batches, but that no batch has counted."""
        losses = []
        for place, files in enumerate(given.taken):
            known = _names(given.files[place].values())
            missing = sorted(files.keys() - known)
            if missing:
                source = self._pipeline.sources[place]
                losses.append(f"{source}: {len(missing)} files were never counted: {first_names(missing)}")
        return losses

    def _in_checkpoint(self, point: ResumePoint) -> list[Files]:
        if isinstance(self._checkpoint, StorePath):
            _ = self._spark  # start the session, because the store is read through it
        if checkpoint_id(self._checkpoint) != point.checkpoint_id:
            return [{}] * len(point.offsets)
        return [
            source.taken(self._checkpoint / "sources" / str(place), offset) if isinstance(source, ListedSource) else {}
            for place, (source, offset) in enumerate(zip(self._pipeline.sources, point.offsets, strict=True))
        ]

    def _count(self, fed: PersistentAggregate, after: Input | None, upto: Input, keys: KeySample) -> Counted:
        """Count keys in the input after batch `after` (None: from the first batch) and up to batch `upto`."""
        parts = {source: self._events(source, after, upto) for source in self._pipeline.sources_of(fed)}
        known: dict[Node, DataFrame] = {
            source: part.parsed.good() if part else self._nothing(source) for source, part in parts.items()
        }
        frames = Frames(self._pipeline, self._context(upto.at), known)
        try:
            counted = _folded(fed.spec, keys.partials(fed, frames.of(fed.stream)).toArrow().to_batches())
        finally:
            frames.forget()
        if after is None and len(parts) == len(self._pipeline.sources):
            self._check_rows(upto, sum(part.rows for part in parts.values() if part))
        return counted

    def _check_rows(self, given: Input, rows: int) -> None:
        counted = rows_counted(self._conn, self._pipeline.name, given.at.txid)
        if rows < counted:
            raise RecountError(
                f"pipeline {self._pipeline.name!r}: {counted} rows were counted, but its sources now give only {rows}, "
                "so they have dropped some since"
            )

    def _events(self, source: Source, after: Input | None, upto: Input) -> SourceEvents | None:
        assert isinstance(source, RereadSource)
        place = self._pipeline.sources.index(source)
        start, end = after.point.offsets[place] if after else None, upto.point.offsets[place]
        if end is None or start == end:
            return None
        counted = CountedInput(self._conn, self._pipeline.name).of(place)
        raw = source.reread(self._spark, Span(counted, start, end, self._files(place, after, upto)))
        self._check_identity(source, place)
        return SourceEvents(source, source.parse(raw))

    def _check_identity(self, source: Source, place: int) -> None:
        bound = self._conn.execute(
            "SELECT sources FROM tidegauge.pipeline WHERE name = %s", [self._pipeline.name]
        ).fetchone()
        others = replaced(bound[0][place : place + 1] if bound else [], [source.identity()])
        if others:
            raise RecountError(f"source {others[0][0]!r}: is now {others[0][2]!r}, and was {others[0][1]!r}")

    def _files(self, place: int, after: Input | None, upto: Input) -> Files:
        """Return the files of a source in this range, including those that were read but never counted."""
        files: Files = {}
        for txid, names in upto.files[place].items():
            again = files.keys() & names.keys()
            if again:
                raise RecountError(f"file {min(again)!r}: was counted by several batches, the last of which is {txid}")
            files |= names
        files = upto.taken[place] | files
        before = (_names(after.files[place].values()) | after.taken[place].keys()) if after else set()
        return {name: at for name, at in files.items() if name not in before}

    def _nothing(self, source: Source) -> DataFrame:
        return self._spark.createDataFrame([], source.schema)

    def _context(self, at: Position) -> BatchContext:
        batch = Batch(self._pipeline.name, 0, at.txid, 0, at.batch_time)
        return BatchContext(batch, "", frozenset(spec.name for spec in self._pipeline.specs))


def _names(batches: Iterable[Files]) -> set[str]:
    return {name for files in batches for name in files}


def _folded(spec: StateSpec, batches: Iterable[pa.RecordBatch]) -> Counted:
    counted: Counted = {}
    key_filter = KeyFilter(spec, partials=True)
    for batch in key_filter.filter_invalid(batches):
        keys = zip(*(batch[name].to_pylist() for name in spec.key), strict=True) if spec.key else [()]
        for key, partial in zip(keys, batch.select(list(spec.partial_columns)).to_pylist(), strict=True):
            typed = spec.check_key(key)
            counted[typed] = spec.fold(counted.get(typed), partial)
    if any(letter.reason.startswith("measure ") for letter in key_filter.letters):
        raise RecountError(f"state {spec.name!r}: the total of all batches is out of range")
    return counted


def _joined(spec: StateSpec, counted: Counted, later: Counted) -> Counted:
    # A folded value can be folded again as a partial, because it has all columns of one.
    return counted | {key: spec.fold(counted.get(key), value) for key, value in later.items()}


@contextmanager
def _reasons(state: str) -> Iterator[None]:
    """Convert the errors that end a recount early to RecountError."""
    try:
        yield
    except (InputLostError, ResumeError, SourceReplacedError, FoldRangeError) as error:
        raise RecountError(str(error)) from error
    except (PySparkException, Py4JError) as error:
        raise RecountError(f"state {state!r}: Spark cannot read its input again: {failure_reason(error)}") from error
