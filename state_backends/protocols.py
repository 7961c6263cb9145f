"""The contracts of the library: where rows live, how measures fold, and what a backend owes."""

from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString, NamedTuple, Protocol

from tidegauge.state_backends.errors import CapabilityError
from tidegauge.state_backends.spec.row import Key, Versioned

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from tidegauge.state_backends.dead_letters.letters import DeadLetter
    from tidegauge.state_backends.ledger.batch import Batch
    from tidegauge.state_backends.maintenance import Horizon, Step
    from tidegauge.state_backends.reader.reader import Reader
    from tidegauge.state_backends.reader.scanned import CommittedRow, Published
    from tidegauge.state_backends.spec.state_spec import StateSpec


class IBackingMap(Protocol):
    """Where the rows of one state live. Trident's IBackingMap, with removal, scans and revert added.

    Keys are tuples with one part per key column of `spec`, in that order. A key that does not fit raises KeyShapeError,
    naming its index, and nothing of that call is stored. Empty calls do nothing.
    """

    @property
    def spec(self) -> "StateSpec": ...

    def multi_get(self, keys: Sequence[Key]) -> list[Versioned | None]:
        """Return the stored row of each key, in the order asked; None where a key is absent."""

    def multi_put(self, keys: Sequence[Key], rows: Sequence[Versioned]) -> None:
        """Store rows[i] under keys[i], all or none.

        Raises DuplicateKeyError if a key comes twice, StaleBatchError if a stored row has a newer txid than its
        replacement: a writer that was left behind must not take a row back, whatever it has read or cached before.
        """

    def multi_remove(self, keys: Sequence[Key]) -> None:
        """Forget the rows of these keys, versions and all; absent keys are no error."""

    def scan(
        self, start: Key | None = None, stop: Key | None = None, prefix: Key | None = None
    ) -> Iterator[tuple[Key, Versioned]]:
        """Yield (key, row) in key order: from `start` (with it) to `stop` (without it), or under a prefix of parts."""

    def revert(self, txid: int) -> int:
        """Put every row written by batch `txid` back to its previous version. Returns the number of rows."""


class Updater(Protocol):
    """Turns the stored value of one key into the new one. Trident's ValueUpdater."""

    def update(self, stored: Any) -> Any:
        """Return the new value; `stored` is None where nothing is stored, and must not be changed itself."""


class Input(NamedTuple):
    """A column that an aggregator reads, and the SQL type as which it does.

    largest: the largest absolute value that it takes, which leaves out NaN; None takes every value of the type.
    is_given: whether the declaration names the type; if not, a pipeline refuses a column that the type may not hold.
    """

    column: str
    type: str
    largest: float | None = None
    is_given: bool = True


class Aggregator(Protocol):
    """One measure of a state: what Spark computes of a batch, what is stored, how the two join, what a reader sees.

    columns: the stored columns, suffix to SQL type; the suffix `""` names the measure's own column.
    fold_sql: per suffix, SQL over {stored_SUFFIX} and {partial_SUFFIX} ({stored}, {partial} for the suffix `""`); empty
        where SQL cannot fold it, and then the state takes the generic path, by `fold`.
    fold_lua: the same in Lua, over the functions of backends/redis/lua/arithmetic.lua (`add_integer`,
        `min_double`, ..); a missing value is nil. Empty where Lua cannot.
    finish_sql: SQL over {stored_SUFFIX} giving what a reader sees, of type `result_type`.
    Folding is associative and commutative, and takes a null on either side as nothing. Where a result is out of the
    range of its column, `fold` returns it all the same and `fold_sql` raises PostgreSQL's 22003.
    An aggregator may also have `inputs`, a tuple of Input: events with a value that one of them cannot hold exactly are
    dead letters; `totals`, the suffixes whose partial is null or infinite where the batch's own total is out of range;
    `signed_partial(sign)`, which is `partial` over rows that are taken away where the Spark SQL `sign` is below 0, and
    raises SpecError where that is not exact; `removes_at_zero`, whether a key is removed where its value is 0;
    `is_choice`, whether its result is one of the values, and so never out of range; `fold_all(values)`, which folds
    one or more values at once where that costs less than pair by pair; and `are_alike(left, right)`, whether two
    stored values, suffix to value, may be of the same events, where the order in which batches were folded shows in
    them.
    """

    name: ClassVar[str]
    finish_sql: LiteralString

    @property
    def columns(self) -> Mapping[str, LiteralString]: ...

    @property
    def fold_sql(self) -> Mapping[str, LiteralString]: ...

    @property
    def fold_lua(self) -> Mapping[str, str]: ...

    @property
    def result_type(self) -> str: ...

    def partial(self) -> Mapping[str, str]:
        """Return per suffix the Spark SQL expression that aggregates one batch; a suffix left out comes from `fold`."""

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        """Join two partials, given and returned as suffix to value: the Python twin of `fold_sql`.

        Either side may be without the suffixes that `partial` leaves out, or hold nulls for nothing.
        Returns every suffix of `columns`.
        """

    def finish(self, stored: Mapping[str, Any]) -> Any:
        """Return what a reader sees; the Python twin of `finish_sql`."""

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, for the catalog."""


class BackendSession(Protocol):
    """One state within one attempt at a batch; made on the driver and again in each task. All of it may raise
    FencedError, once another driver or attempt has taken over, and BackendUnavailable."""

    @property
    def rows(self) -> IBackingMap:
        """The rows as they are stored."""

    def admit(self) -> None:
        """Let this attempt write and no older one. For the driver, once the ledger has begun the batch.

        Raises FindingError where the store does not hold what was committed.
        """

    def check(self, keys: int | None) -> None:
        """Raise LostWritesError unless the store has what the tasks wrote. For the driver, before the ledger's commit.

        keys: how many they wrote; None where that is unknown.
        """

    def publish(self, keys: int | None) -> None:
        """Show the batch to readers. For the driver, once the ledger has committed it. Raises LostBatchesError where
        the store has lost some of it since."""

    def writing(self) -> AbstractContextManager[None]:
        """Return a context in which the task may write.

        Its attempt is checked here, or by `merge` and `updating` before they read or write a row.
        Where the rows are in the ledger's database it is the caller's transaction, or one of its own.
        """

    def updating(self) -> AbstractContextManager[IBackingMap]:
        """Return a context with the rows for an updater, logged if the state keeps a changelog; stored at its end."""

    @property
    def refused(self) -> "Sequence[DeadLetter]":
        """The keys whose share of the batch `merge` could not fold, and left alone (see FoldRangeError)."""

    def merge(self, batches: Iterable["pa.RecordBatch"], *, first_run: bool = False) -> int:
        """Fold partial aggregates into the rows and log them. Returns the number of keys, without those in `refused`.

        batches: Arrow batches with the key columns and those of `spec.partial_columns`, by name; one row per key.
        first_run: Spark has not run the task before in this attempt. A key that two tasks of an attempt write is an
        error: at once, SecondWriterError, where the rows tell; else when `check` counts the keys.
        """

    def new_values(self, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
        """Yield what `merge` made of its keys: key, finished measures and, for opaque states, those of before."""

    def revert(self) -> None:
        """Undo what the batch has written, rows and entries."""

    def due_keys(self, due: str, before: datetime, most: int) -> list[Key]:
        """Return the keys, at most so many, whose time in column or member `due` is `before` or earlier, the earliest
        first. Before a task of the batch writes the state."""

    def next_due(self, due: str) -> "datetime | None":
        """Return the earliest time in column or member `due` of any key, None if there is none; once the batch is
        committed. What `due_keys` returns later is not before it."""

    def first_from(self, column: str, start: "datetime | None") -> "datetime | None":
        """Return the earliest time in a key column of any row, from `start` on; None if there is none."""

    def values_between(
        self, column: str, start: "datetime | None", stop: "datetime", schema: "pa.Schema"
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the rows that are live at the batch's time, as key and finished measures, in order of a time in a key
        column, then of the key: from `start` (with it) to `stop` (without it). What the batch has written is seen."""


class StateTables(Protocol):
    """What a backend can do only because its rows are tables of the ledger's database.

    One statement reads them together with the ledger's row, SQL may count them, and they may be partitioned. A shadow
    is a second set of tables that no reader sees: a reprocess feeds it, or a changed declaration is copied into it, and
    one transaction swaps it in.
    """

    def check_names(self, conn: "psycopg.Connection", spec: "StateSpec", beside: Iterable["StateSpec"]) -> None:
        """Raise SpecMismatchError if another state has a name that is derived from this one's, such as a partition's.

        beside: the states that are declared with it, registered or not.
        """

    def check_replaceable(self, conn: "psycopg.Connection", old: "StateSpec", new: "StateSpec") -> None:
        """Raise DependentObjectsError if users' objects depend on tables that a shadow of `new` would replace."""

    def create_shadow(self, conn: "psycopg.Connection", spec: "StateSpec") -> None:
        """Create an empty shadow of the state, with its changelog, replacing what an earlier one left."""

    def copy(self, conn: "psycopg.Connection", old: "StateSpec", new: "StateSpec") -> Iterator[int]:
        """Create a shadow in the shape of `new` and copy rows and changelog into it; yield how many rows are copied."""

    def drop_shadow(self, conn: "psycopg.Connection", spec: "StateSpec") -> None:
        """Drop the shadow of the state, if there is one."""

    def swap(
        self, conn: "psycopg.Connection", old: "StateSpec | None", new: "StateSpec", *, keep: bool = False
    ) -> None:
        """Put the shadow in the place of the tables, within the caller's transaction. old: None for a new state.

        keep: the tables that are replaced are kept, instead of those that an earlier swap kept, for `swap_kept`.
        """

    def swap_kept(self, conn: "psycopg.Connection", current: "StateSpec | None", old: "StateSpec | None") -> None:
        """Put the kept tables back, within the caller's transaction.

        current: the state as it is now, None if it was dropped. old: the state as it was; None if it did not exist
        then, so that its tables are dropped.
        """

    def drop_kept(self, conn: "psycopg.Connection", spec: "StateSpec") -> None:
        """Drop the tables that a swap kept of the state, if it kept any."""

    def index_timers(self, conn: "psycopg.Connection", spec: "StateSpec", due: str, *, shadow: bool = False) -> None:
        """Index the time in column or member `due`, unless it is indexed already.

        Called by a driver that starts and holds the pipeline. shadow: index the shadow of the state.
        """

    def vacuum(self, conn: "psycopg.Connection", spec: "StateSpec") -> None:
        """Make the space of deleted rows usable again."""


class LoopRows(Protocol):
    """The committed rows of one state, for an event loop. Connections belong to the loop that has opened them.

    The caller limits the time of a read, by cancelling it, and how many there are at once.
    """

    async def multi_get_committed(
        self, keys: Sequence[Key], *, clock: datetime | None = None, pinned: "Published | None" = None
    ) -> "tuple[Published, Sequence[CommittedRow]]":
        """Return what `CommittedRows.multi_get_committed` does."""

    async def close(self) -> None:
        """Close the connections of this event loop, which the rows of other states may share. A read opens new ones."""


class StateArchive(Protocol):
    """States of a store outside of the ledger's database, as records for a backup."""

    def save(self, spec: "StateSpec") -> Iterator[bytes]:
        """Yield a state as records, with what the store has recorded about its batches. No batch may be open."""

    def load(self, spec: "StateSpec", records: Iterable[bytes]) -> None:
        """Store the records of `save`. Repeatable. Raises BackendSetupError if this server cannot read them."""


class Backend(Protocol):
    """Everything that a store of states owes to the rest. Registered by one line in `BACKENDS`.

    title: what people call it. has_partitions: whether a state may have several. timeout_seconds: how long a call may
    take in this process; None leaves it to the connection. Connections to the ledger's database are passed in; a
    backend outside of it opens its own, lazily, and keeps none in itself: it travels to executors with the tasks.
    Every method may raise BackendUnavailable where the store does not answer.
    """

    title: str
    has_partitions: bool
    timeout_seconds: float | None

    @property
    def tables(self) -> StateTables | None:
        """What the backend can do because its rows are tables of the ledger's database; None if they are elsewhere."""

    @property
    def archive(self) -> StateArchive | None:
        """What saves a state for a backup; None if its rows are in the ledger's database, or it cannot."""

    def check(self) -> None:
        """Raise BackendSetupError, naming the setting, where this process has not been told where the store is."""

    def rows(self, conn: "psycopg.Connection", spec: "StateSpec") -> IBackingMap:
        """Return the rows of a state, outside of any batch."""

    def session(
        self, conn: "psycopg.Connection", spec: "StateSpec", batch: "Batch", *, shadow: bool = False
    ) -> BackendSession:
        """Return a state as one attempt at a batch has it.

        conn: to the ledger's database, in autocommit mode, for this state's part of a task alone. spec: as is in force
        for the batch. shadow: the state is fed out of sight.
        """

    def reader(self, conn: "psycopg.Connection", spec: "StateSpec", past: "Reader | None") -> "Reader":
        """Return a reader of the committed batch. past: reads the state's changelog, None where it keeps none."""

    def loop_rows(self, spec: "StateSpec") -> LoopRows | None:
        """Return the committed rows for an event loop; None if they are in the ledger's database, or for threads only.

        Raises BackendSetupError as `check` does.
        """

    def committed_values(
        self, conn: "psycopg.Connection", spec: "StateSpec", keys: Sequence[Key], txid: int, at: datetime
    ) -> list[Any]:
        """Return the values committed up to `txid`, as of time `at`, in the order asked; None where absent."""

    def check_new(self, conn: "psycopg.Connection", spec: "StateSpec") -> None:
        """Raise SpecMismatchError where the store has something under the name of a state that is not registered."""

    def create(self, conn: "psycopg.Connection", spec: "StateSpec") -> None:
        """Make room for the rows of a new state. Its changelog is not the backend's."""

    def drop(self, conn: "psycopg.Connection", spec: "StateSpec") -> None:
        """Forget the state for good: rows, changelog, and what stands ready or was kept of them. Repeatable.

        Where the rows are in the ledger's database it is part of the caller's transaction. Raises
        DependentObjectsError where users' objects stand on what goes.
        """

    def rename(self, conn: "psycopg.Connection", old: "StateSpec", new: "StateSpec") -> None:
        """Give what is in the ledger's database the name of `new`, within the caller's transaction.

        Rows elsewhere stay: the caller copies them.
        """

    def begin_copy(self, conn: "psycopg.Connection", spec: "StateSpec") -> IBackingMap:
        """Make room for a copy of a state's rows, out of sight of readers, and return it; an earlier one goes."""

    def end_copy(self, conn: "psycopg.Connection", spec: "StateSpec", committed: int) -> None:
        """Show the copy, as of batch `committed`, within the caller's transaction. Its changelog is not the copy's."""

    def is_copying(self, spec: "StateSpec") -> bool:
        """Return whether a copy has begun and not ended, where a name that is not registered has rows of it."""

    def holds(self, spec: "StateSpec") -> bool:
        """Return whether a store outside of the ledger's database has anything of the state. False if there is none."""

    def add_measures(self, conn: "psycopg.Connection", old: "StateSpec", new: "StateSpec") -> None:
        """Make room for the measures that `new` has and `old` lacks."""

    def catch_up(self, conn: "psycopg.Connection", spec: "StateSpec", start: "Batch", *, is_new: bool) -> str:
        """Compare the store with the ledger in both directions, make good what a crash leaves, and show what the ledger
        has committed; before anything is read or written by a driver that starts.

        start: the committed batch, under this driver's fence, attempt 0. is_new: nothing was fed yet.
        Returns a warning about the store for people, "" for none. Raises FindingError, FencedError, and
        BackendSetupError where the store is set up so that it may drop rows.
        """

    def expire(self, conn: "psycopg.Connection", spec: "StateSpec") -> Iterator["Step"]:
        """Free the rows whose time to live has run out, a page per step."""

    def compact(self, conn: "psycopg.Connection", spec: "StateSpec", horizon: "Horizon") -> Iterator["Step"]:
        """Free tombstones and versions that neither a replay nor a reader needs, a page per step."""

    def sizes(self, conn: "psycopg.Connection", spec: "StateSpec") -> tuple[int, int]:
        """Return how many rows are stored, live or not, and how many bytes they take, or about as many."""

    def split_keys(self, conn: "psycopg.Connection", spec: "StateSpec", parts: int) -> list[Key]:
        """Return at most `parts` - 1 keys, in key order, that divide the stored rows into about equal parts."""

    def begin_rebuild(self, conn: "psycopg.Connection", spec: "StateSpec", *, goes_on: bool) -> None:
        """Make ready for rows rebuilt from the changelog. goes_on: a rebuild was cut short, and its rows stay."""

    def check_one_back(self, conn: "psycopg.Connection", spec: "StateSpec", to: int) -> None:
        """Raise FindingError unless reverting batch `to` + 1, the committed one, leaves the rows of batch `to`."""

    def take_back(self, conn: "psycopg.Connection", spec: "StateSpec", to: int) -> None:
        """Give every key the versions that it had after batch `to`, from the changelog, which has none of later ones
        any more where the rows are in another store; within the caller's transaction where they are in the ledger's.
        """

    def end_rebuild(self, conn: "psycopg.Connection", spec: "StateSpec", committed: int) -> None:
        """Show rows that were rebuilt from the changelog, as of batch `committed`."""


class Registry(UserDict[str, Backend]):
    """Name to backend, as `StateSpec(.., backend=name)` has it; state_backends/backends/__init__.py has the lines.

    A backend is loaded when it is first read, because its modules import this one. A specification needs its name
    alone, and the modules of all take 0.2 s of CPU.
    """

    def __init__(self) -> None:
        """Leave `data` to its first use."""

    @cached_property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        return dict(import_module("tidegauge.state_backends.backends").REGISTERED)

    def __getitem__(self, name: str) -> Backend:
        if isinstance(self.data[name], str):
            module, _, made = self.data[name].rpartition(".")
            self.data[name] = getattr(import_module(module), made)()
        found: Backend = self.data[name]
        return found

    def tables_of(self, spec: "StateSpec") -> StateTables:
        """Return the tables' part of a state's backend. Raises CapabilityError if its rows are in another store."""
        backend = self[spec.backend]
        if backend.tables is None:
            raise CapabilityError(
                f"state {spec.name!r}: its rows are in {backend.title}, so they cannot be copied or swapped in one "
                "transaction with the ledger"
            )
        return backend.tables


BACKENDS = Registry()
