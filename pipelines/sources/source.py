"""What a source is: its protocol, those of what some sources can do besides, and what several of them share."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, runtime_checkable

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegauge.pipelines.checkpoint.files import CheckpointPath
from tidegauge.pipelines.checkpoint.folder import offset_range
from tidegauge.pipelines.sources.guarantee import Spout
from tidegauge.pipelines.sources.pending import Pending
from tidegauge.state_backends.aggregators.column import quoted
from tidegauge.state_backends.dead_letters.letters import DeadLetter
from tidegauge.state_backends.ledger.source_input import Identity, SourceInput
from tidegauge.state_backends.repair.resume import Files, ResumePoint, files_up_to
from tidegauge.state_backends.schema.counted import CountedSource

# The column of a stream of changes that is negative for an old row, so that `Stream.retract` subtracts it.
SIGN = "_sign"


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


def called(source: Source) -> str:
    """Return how a message names a source: by its text, or by its class if it has none."""
    return type(source).__name__ if type(source).__str__ is object.__str__ else str(source)


def offsets_held(checkpoint: CheckpointPath, batch_id: int, place: int, name: str) -> SourceInput | None:
    """Return what a batch reads of a source without parts, by its offsets [from, to]."""
    offsets = offset_range(checkpoint, batch_id, place)
    if offsets is None:
        return None
    start, end = offsets
    return SourceInput("positions", {} if start == end else {name: [start, end]})
