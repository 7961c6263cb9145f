"""The protocols of a source, `Sources`, which reads all sources of a query as one, and what several sources share.

A query has one streaming DataFrame. `Sources` merges those of its sources, so that their input of a batch commits
together.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol, runtime_checkable

import psycopg
from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.checkpoint.folder import batch_offsets, offset_range
from tidegauge.pipelines.errors import InputLostError, PipelineError
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.repair.resume import Files, ResumePoint, files_up_to
from tidegauge.state_backends.schema.counted import CountedInput, CountedSource

# From the strongest promise to the weakest.
STRENGTH: list[Spout] = ["transactional", "opaque", "non_transactional"]

# The column of a stream of changes that is negative for an old row, so that `Stream.retract` subtracts it.
SIGN = "_sign"


@dataclass(frozen=True)
class Pending:
    """Input that no committed batch has read: `count` of a `unit`, such as 3 files.

    oldest: when the oldest of it arrived, ISO, or None.
    alarm: a problem that an operator should solve before it gets worse, or None.
    """

    count: int
    unit: str
    oldest: str | None
    alarm: str | None = None


@dataclass(frozen=True)
class Parsed:
    """A parsed micro-batch. rows: every event, good and bad. columns: an event's own.

    bad: the column that holds a line that could not be read, null in every good row; None if no row can be bad.
    by_row: whether every row was parsed by itself, without looking at others.
    """

    rows: DataFrame
    columns: tuple[str, ...]
    bad: str | None = None
    by_row: bool = True

    def good(self) -> DataFrame:
        events = self.rows if self.bad is None else self.rows.where(f"{self.bad} is null")
        return events.selectExpr(*map(quoted, self.columns))


class Source(Protocol):
    """A place that events come from. Compared by identity, so that streams that share one read it once.

    spout: `transactional` if a replayed batch has the same tuples, `opaque` if it may have others, `non_transactional`
    if there is no replay.
    max_bad_share: the share of a batch that may be unreadable, or rejected by a state, before it stops the pipeline.
    packages: Maven coordinates of the jars that Spark needs for it, `group:artifact:version`.
    """

    spout: Spout
    max_bad_share: float
    packages: tuple[str, ...]

    @property
    def schema(self) -> StructType:
        """The columns of an event."""

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the streaming DataFrame of raw input."""

    def parse(self, batch: DataFrame) -> Parsed:
        """Parse raw input: that of a micro-batch, or the whole streaming DataFrame if rows are parsed by themselves."""

    def dead_letters(self, parsed: DataFrame) -> Iterator[DeadLetter]:
        """Yield each bad row with its place in the input and the reason."""

    def pending(self, checkpoint: CheckpointPath, place: int = 0) -> Pending | None:
        """Return the input that no committed batch has read, or None if that is unknown.

        place: which of the query's sources this is; Spark numbers them in the checkpoint.
        """

    def held(self, checkpoint: CheckpointPath, batch_id: int, place: int = 0) -> SourceInput | None:
        """Return what a planned batch reads of this source, or None if the checkpoint does not say.

        The same input gives the same items, so that a replayed batch can be compared with its first attempt.
        """

    def identity(self) -> Identity:
        """Return what is read, by name, with an id that changes if it is deleted and created again. Call after `load`.

        Empty if there is no such id. A running query calls this before each batch.
        """

    def missing(self, spark: SparkSession, counted: CountedSource) -> str:
        """Say which counted input a query from the start would no longer read; empty if none is known."""

    def check_from(self, offset: Any, again: Collection[str], spark: Callable[[], SparkSession]) -> None:
        """Raise InputLostError unless everything after an offset can still be read. Called to recover a pipeline.

        offset: as the checkpoint has it. again: items of a listed source that come after it and were read before.
        spark: creates the session, for a source that needs it to answer.
        """

    def offset_text(self, offset: Any) -> str:
        """Return an offset exactly as its reader writes it, because Spark takes any other text for new input."""


@runtime_checkable
class ListedSource(Protocol):
    """A source of files or the like: Spark keeps a list in the checkpoint, and reads each item on it only once."""

    def restore(self, log: CheckpointPath, place: int, point: ResumePoint, read: Mapping[int, Files]) -> None:
        """Write the list of a checkpoint that resumes from `point`.

        log: Spark's folder for it. place: which of the query's sources this is. read: what each batch has read, by
        txid, including the open one if that must be replayed unchanged.
        """

    def taken(self, log: CheckpointPath, offset: Any) -> Files:
        """Return the items on Spark's list up to an offset, named as the ledger names them. log: the list's folder."""


@runtime_checkable
class DiscoveredSource(Protocol):
    """A source whose columns are unknown until Spark has opened it."""

    def schema_in(self, spark: SparkSession) -> StructType:
        """Return the columns of an event. Raises SourceSetupError if the source cannot be read."""


@runtime_checkable
class GivenSource(Protocol):
    """A source whose rows an application gives, batch by batch, from a query with any number of sources of its own."""

    def parse_given(self, batch: DataFrame) -> Parsed:
        """Return the rows of a micro-batch with the columns of the stream."""

    def refuse(self) -> NoReturn:
        """Raise PipelineError, because a driver cannot read the rows."""


def listed_files(
    conn: psycopg.Connection, pipeline: str, txid: int, sources: Iterable[tuple[int, Source]]
) -> list[Mapping[int, Files]]:
    """Return for each source the files that each batch up to `txid` has read, by txid; empty if it has no list.

    sources: each with its place among the pipeline's. Raises ResumeError if the ledger does not have the files.
    """
    return [
        files_up_to(conn, pipeline, txid, place) if isinstance(source, ListedSource) else {}
        for place, source in sources
    ]


@dataclass(frozen=True)
class Span:
    """What committed batches have read of one source.

    counted: the input of the first batch. start: the offset that the span begins after; None: it begins with the first
    batch. end: the offset at its end. files: the items of a listed source, as the ledger has them.
    """

    counted: CountedSource
    start: Any
    end: Any
    files: Files


@runtime_checkable
class WaitingSource(Protocol):
    """A source that can wait while other sources of its query are read."""

    def load_waiting(self, spark: SparkSession) -> DataFrame:
        """Return what `load` returns, but batches that are planned from now on read nothing of it.

        A batch that was planned before is read unchanged.
        """


@runtime_checkable
class HeldSource(Protocol):
    """A source for which a server keeps something, such as a replication slot."""

    def drop(self) -> None:
        """Remove it from the server for good. Repeatable."""


@runtime_checkable
class RereadSource(Protocol):
    """A source whose counted input can be read again independently of the query that has read it."""

    def reread(self, spark: SparkSession, span: Span) -> DataFrame:
        """Return raw input that was counted, as `load` gives it, but as a batch. Nothing is acknowledged or written.

        Raises InputLostError if some of it is gone or has changed since.
        """


@runtime_checkable
class ReplayedSource(Protocol):
    """A source whose dead letters keep the raw record, so that they can be parsed again.

    records: the name of such records, by which a source that can parse them is found.
    """

    records: str

    def parse_again(self, spark: SparkSession, records: Sequence[Mapping[str, Any]]) -> Parsed:
        """Parse raw records of dead letters, as `dead_letters` gives them, by the rules of `parse`."""


class Sources:
    """The sources of one query. If there are several, the column `_0`, `_1`, .. of a row holds its source's input.

    Input that is parsed by row is parsed in the query itself, because Spark then plans it once, not for every batch.
    spout: the weakest of their promises.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.spout: Spout = max((source.spout for source in sources), key=STRENGTH.index)
        self.packages = tuple(sorted({package for source in sources for package in source.packages}))
        self._sources = sources
        self._parsed: Sequence[Parsed] = ()

    def load(self, spark: SparkSession, waiting: Collection[Source] = ()) -> DataFrame:
        """Return the streaming DataFrame of their input, which `split` takes apart again.

        waiting: sources of which new batches read nothing.
        """
        raw = [
            source.load_waiting(spark) if source in waiting else source.load(spark)  # type: ignore[attr-defined]
            for source in self._sources
        ]
        self._parsed = [source.parse(rows) for source, rows in zip(self._sources, raw, strict=True)]
        frames = [parsed.rows if parsed.by_row else rows for parsed, rows in zip(self._parsed, raw, strict=True)]
        if len(frames) == 1:
            return frames[0]
        first, *others = (frame.select(F.struct("*").alias(f"_{place}")) for place, frame in enumerate(frames))
        for other in others:
            first = first.unionByName(other, allowMissingColumns=True)
        return first

    def split(self, batch: DataFrame) -> list[Parsed]:
        """Return the parsed input of each source in a micro-batch of the query that was loaded."""
        if isinstance(self._sources[0], GivenSource):
            return [self._sources[0].parse_given(batch)]
        parts = [batch]
        if len(self._sources) > 1:
            parts = [batch.where(f"_{place} is not null").select(f"_{place}.*") for place in range(len(self._sources))]
        return [
            replace(parsed, rows=part) if parsed.by_row else source.parse(part)
            for source, parsed, part in zip(self._sources, self._parsed, parts, strict=True)
        ]

    def held(self, checkpoint: CheckpointPath, batch_id: int) -> list[SourceInput | None]:
        """Return what a planned batch reads of each source, None if the checkpoint does not say."""
        places = self.at_places(len(batch_offsets(checkpoint, batch_id) or self._sources))
        return [source.held(checkpoint, batch_id, place) for place, source in enumerate(places)]

    def at_places(self, count: int) -> Sequence[Source]:
        """Return the source at each place of a query that has `count` sources in its checkpoint."""
        # Not at the top, because that module imports this one.
        from tidegauge.pipelines.sources.ticks import Ticks

        if isinstance(self._sources[0], GivenSource):
            return [self._sources[0]] * count
        # Matched by their number, because a pipeline may gain or lose its ticks between two runs.
        events = [source for source in self._sources if not isinstance(source, Ticks)]
        return {len(events): events, len(events) + 1: [*events, Ticks()]}.get(count, self._sources)

    def identities(self) -> list[Identity]:
        """Return what each source reads, with its id."""
        return [source.identity() for source in self._sources]

    def missing(self, spark: SparkSession, counted: CountedInput) -> list[str]:
        """Say which counted input a query from the start would no longer read, as far as the sources know."""
        found = (source.missing(spark, counted.of(place)) for place, source in enumerate(self._sources))
        return [missing for missing in found if missing]

    def check_from(
        self, offsets: Sequence[Any], again: Callable[[int], Collection[str]], spark: Callable[[], SparkSession]
    ) -> Iterator[tuple[Source, InputLostError | None]]:
        """Yield each source, and why what comes after its offset cannot be read; None if it can.

        again: returns, for the place of a source, the items that it has read after the offset.
        """
        for place, (source, offset) in enumerate(zip(self.at_places(len(offsets)), offsets, strict=True)):
            try:
                source.check_from(offset, again(place), spark)
                yield source, None
            except InputLostError as lost:
                yield source, lost

    def pending(self, checkpoint: CheckpointPath) -> Pending | None:
        """Return what all sources together have pending, or None if no source knows."""
        return combined([source.pending(checkpoint, place) for place, source in enumerate(self._sources)])


def combined(parts: Iterable[Pending | None]) -> Pending | None:
    """Add up what several sources have pending, with the alarms of all; None if none of them knows."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    oldest = min((part.oldest for part in known if part.oldest), default=None)
    units = " and ".join(sorted({part.unit for part in known}))
    alarm = "; ".join(part.alarm for part in known if part.alarm) or None
    return Pending(sum(part.count for part in known), units, oldest, alarm)


def called(source: Source) -> str:
    """Return how a message names a source: by its text, or by its class if it has none."""
    return type(source).__name__ if type(source).__str__ is object.__str__ else str(source)


def as_progress(pending: Pending | None) -> dict[str, Any]:
    if pending is None:
        return {}
    return {"pending": {name: value for name, value in vars(pending).items() if name != "alarm" or value is not None}}


def offsets_held(checkpoint: CheckpointPath, batch_id: int, place: int, name: str) -> SourceInput | None:
    """Return what a batch reads of a source without parts, by its offsets [from, to]."""
    offsets = offset_range(checkpoint, batch_id, place)
    if offsets is None:
        return None
    start, end = offsets
    return SourceInput("positions", {} if start == end else {name: [start, end]})


def declared(schema: str | StructType, where: str, reserved: Iterable[str] = ()) -> StructType:
    """Return a schema given as Spark DDL or as a StructType.

    where: the source, for the error. reserved: names that the source needs for itself.
    Raises PipelineError if it is not a schema, or names no column, one twice, or a reserved one.
    """
    columns = _from_ddl(schema, where)
    names = [name.casefold() for name in columns.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    taken = sorted({name.casefold() for name in reserved} & set(names))
    if not names or twice or taken:
        fault = "names no columns"
        if twice:
            fault = f"names {twice[0]!r} twice"
        elif taken:
            fault = f"names {taken[0]!r}, which the source needs for itself; rename the column"
        raise PipelineError(f"source {where}: schema {fault}")
    return columns


def _from_ddl(schema: str | StructType, where: str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    try:
        parsed = StructType.fromDDL(schema)
    except ParseException as error:
        raise PipelineError(f"source {where}: schema {schema!r} is not Spark DDL: {error}") from error
    if not isinstance(parsed, StructType):
        raise PipelineError(f"source {where}: schema {schema!r} names no columns")
    return parsed


def required(schema: StructType) -> list[str]:
    """Return the names of the columns that must hold a value."""
    return [field.name for field in schema if not field.nullable]


def nullable(schema: StructType) -> StructType:
    """Return the same columns, none of them required, because Spark may fill absent required values with defaults."""
    return StructType([StructField(field.name, field.dataType, True) for field in schema])
