"""The errors of this library, one class per thing a caller can do about it."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, Self


class TidegaugeError(Exception):
    """Base class of every error of this library.

    Catch it at a process boundary; catch a subclass where you can handle it.
    retryable: whether the same work may succeed when it is tried again without a change by a person.
    """

    retryable: ClassVar[bool] = False


class MissingPackageError(TidegaugeError, ImportError):
    """A package that is needed is not installed: install the extra that the message names."""


class SpecError(TidegaugeError):
    """A declaration is wrong: correct the StateSpec."""


class SchemaVersionError(TidegaugeError):
    """This version cannot use the database's schema: do what the message says."""


class ServerVersionError(TidegaugeError):
    """The database server is too old: upgrade it."""


class SpecMismatchError(TidegaugeError):
    """A declaration differs from the stored state: restore the declaration, or reprocess into a new state."""


class KeyShapeError(TidegaugeError):
    """A key does not fit the state's key columns: correct the key."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class FilterError(TidegaugeError):
    """A condition does not fit the state: correct the condition."""


class RangeTooLargeError(TidegaugeError):
    """A range has more keys than may be read for sorting or grouping: ask for a smaller one, or in key order."""


class ValueShapeError(TidegaugeError):
    """A value cannot be stored in the state: correct the value."""


class FoldRangeError(TidegaugeError):
    """A fold left its column's range: the key keeps its value, and its share of the batch becomes a dead letter."""

    @classmethod
    def of(cls, measure: str, sql_type: str, stored: object, partial: object) -> Self:
        """Return the error of two numbers whose fold is out of range."""
        return cls(f"measure {measure}: {stored} joined with {partial} is out of the range of {sql_type}")


class MovedOnError(TidegaugeError):
    """Batches were published faster than a read could keep up, or one was reverted: read again."""


class DuplicateKeyError(TidegaugeError):
    """One write contains a key twice: combine the rows of a key before writing."""


class RepeatedUpdateError(TidegaugeError):
    """A batch updates a key of a transactional state in two calls: update it in one, or make the writes atomic."""


class SecondWriterError(TidegaugeError):
    """Two tasks of one attempt wrote the same key, so one of the writes would be lost: try the batch again."""

    # Because one task that Spark ran twice unnoticed looks the same, and the next attempt does not repeat that.
    retryable = True


class StaleBatchError(TidegaugeError):
    """A stored row is newer than the batch that writes it: stop the older writer."""

    @classmethod
    def behind(cls, txid: object, stored: object, key: str, state: str | None = None) -> Self:
        """Return the error of batch `txid` for a key that the newer batch `stored` wrote. key: for the message."""
        where = "" if state is None else f"state {state!r}: "
        return cls(
            f"{where}batch {txid} is older than stored batch {stored} for key {key}; "
            "another runner has moved on, so stop this one"
        )


class BackendUnavailable(TidegaugeError):  # noqa: N818  the condition of a server, named as users search for it
    """The store of a state does not answer: try again later."""

    retryable = True


class BackendSetupError(TidegaugeError):
    """A setting that a backend needs is missing or wrong: correct the setting that the message names."""


class CapabilityError(TidegaugeError):
    """A backend does not support an operation: use a backend that does, or do without."""


class FencedError(TidegaugeError):
    """Another driver or attempt has taken over: stop this one."""

    # Because a task may belong to an earlier attempt and be late. A driver that gets the error itself stops at once.
    retryable = True


class StateBusyError(TidegaugeError):
    """Another operation uses a state's tables: try again when it has ended. work: its name in state_lock.py."""

    retryable = True

    def __init__(self, message: str, work: str = "") -> None:
        super().__init__(message)
        self.work = work


class StateGapError(TidegaugeError):
    """Batches were committed while a state or measure was not declared: reprocess, rename it, or accept the gap."""


class RolesError(TidegaugeError):
    """Database roles cannot be set up over this connection: connect as the message says."""


class TablesBusyError(TidegaugeError):
    """Readers have used tables that must be changed for minutes: wait for those that the message names, or end them."""

    retryable = True


class DependentObjectsError(TidegaugeError):
    """Users' views or other objects depend on tables that a change replaces: drop them, and create them again after."""


class ClockError(TidegaugeError):
    """The clock of the database, or of this host, is wrong: correct it."""

    # Because somebody may correct the clock while the driver waits.
    retryable = True


class PipelineHeldError(TidegaugeError):
    """A live driver holds the pipeline: stop that driver first."""


class LostWritesError(TidegaugeError):
    """A store has lost writes of the open batch that it had acknowledged: try the batch again."""

    retryable = True


class FindingError(TidegaugeError):
    """A state's store does not agree with the ledger: do what the message says.

    Until then no driver feeds the state, and it is not served. state: its name.
    """

    def __init__(self, message: str, state: str = "") -> None:
        super().__init__(message)
        self.state = state


class LostBatchesError(FindingError):
    """A store no longer has what was committed to it: restore it, or rebuild the state."""


class StoreAheadError(FindingError):
    """A store has batches that the ledger lacks, or other attempts: restore the ledger, or rebuild the state."""


class RebuildingError(FindingError):
    """A rebuild of the state has not finished: wait for it, or run it again."""


class BatchOrderError(TidegaugeError):
    """A batch is neither the next nor the last committed one: the checkpoint and the ledger disagree."""


class RewindError(TidegaugeError):
    """A pipeline cannot be taken back to that batch: choose one that the message names, or reprocess."""


class CheckpointTornError(TidegaugeError):
    """A power cut has left the checkpoint with files that are empty or cut off: restore a whole copy of it."""


class InputChangedError(TidegaugeError):
    """A batch that was counted comes again with other input: restore the checkpoint, or do what the message says."""


class SourceReplacedError(TidegaugeError):
    """A topic, folder or other source was deleted and created again: reprocess, or rebind to the new one."""


class ResumeError(TidegaugeError):
    """The ledger lacks the positions of a pipeline's sources: restore the checkpoint, or reprocess."""


class DeviationError(TidegaugeError):
    """Keys of a state do not hold what was counted: see docs/recovery.md, "An audit found a deviation"."""


class OutOfReachError(TidegaugeError):
    """A batch is too old to be read: ask for a later one. oldest: the oldest one that can be read."""

    def __init__(self, state: str, txid: int, oldest: int) -> None:
        super().__init__(
            f"state {state!r}: batch {txid} is out of reach, this query can be answered from batch {oldest} on; ask "
            "for that or a later one"
        )
        self.oldest = oldest

    @classmethod
    def before(cls, state: str, at: datetime, first: datetime | None) -> Self:
        """Return the error of a time before the first batch on record."""
        error = cls(state, 0, 0)
        error.args = (
            f"state {state!r}: no batch is on record up to {at}, the first one is of {first}; ask for a later time",
        )
        return error


class TilesGoneError(TidegaugeError):
    """A window begins before the oldest tiles that are kept: ask for a shorter one, or keep tiles longer."""

    def __init__(self, state: str, since: datetime, kept_from: datetime) -> None:
        super().__init__(
            f"state {state!r}: a window would begin at {since.isoformat()}, and tiles are kept from "
            f"{kept_from.isoformat()}; ask for a shorter window, or let the state keep its coarsest tiles longer"
        )
        self.kept_from = kept_from


class NotCommittedError(TidegaugeError):
    """A requested batch is not committed: wait for it, or ask for an earlier one. newest: the last committed batch."""

    def __init__(self, state: str, txid: int, newest: int) -> None:
        super().__init__(
            f"state {state!r}: batch {txid} is not committed, the newest one is {newest}; wait for it, or ask for an "
            "earlier one"
        )
        self.newest = newest


class CheckpointMismatchError(TidegaugeError):
    """A pipeline was started with another checkpoint: restore the former one, use new states, or rebind."""


class SwapError(TidegaugeError):
    """The shadow tables of a reprocess cannot be swapped in: finish it, or abort it and begin again."""


class ShorterInputError(TidegaugeError):
    """A reprocess would count less than the states have counted: find out why, or accept it with --accept-shorter."""


class ChangedResultError(TidegaugeError):
    """A reprocess gives other results than the batches did: find out why, or accept them with --accept-changes."""


class RollBackError(TidegaugeError):
    """The states that a reprocess replaced cannot be put back: the message says why, and what to do."""


class UnknownNameError(TidegaugeError):
    """Nothing has that name: choose one of the names that the message lists."""

    kind: ClassVar[str]

    @classmethod
    def among(cls, name: str, names: Iterable[str]) -> Self:
        """Return the error for a name that is not in `names`."""
        return cls(f"{cls.kind} {name!r} does not exist; there are {', '.join(names) or 'none yet'}")


class UnknownStateError(UnknownNameError):
    kind = "state"


class UnknownPipelineError(UnknownNameError):
    kind = "pipeline"


class FormerStateError(UnknownStateError):
    """The state was retired or renamed: the message says what became of it."""


class FormerPipelineError(UnknownPipelineError):
    """The pipeline was retired or renamed: the message says what became of it."""


class RetiredError(TidegaugeError):
    """A declaration uses the name of a state or pipeline that was retired or renamed: do what the message says."""


class LifeError(TidegaugeError):
    """A state or pipeline cannot be retired, renamed or moved: the message says why, and what to do."""


class BackfillError(TidegaugeError):
    """A pipeline's history cannot be counted, or prevents another operation: do what the message says."""


class KeyValueStoreError(TidegaugeError):
    """Base class of the errors of a key-value store."""


class StoreClosedError(KeyValueStoreError):
    """The store was closed: open a new one."""


class PositionError(KeyValueStoreError):
    """A position is outside the log: ask `plan_restore` what to restore instead."""


class SynchronizerError(TidegaugeError):
    """Base class of the errors of a synchronizer and its log."""


class NoInitialStateError(SynchronizerError):
    """The log has no initial value: call `initialize` first."""


class ContentionError(SynchronizerError):
    """Every attempt at an update found a newer record: retry later, or write without a condition."""


class RecordTooLargeError(SynchronizerError):
    """A record, or the state after it, is over the size limit: write less, or split the state over several logs."""


class CorruptedStateError(SynchronizerError):
    """A record is neither an initial value nor a list of updates: something else writes to this log."""


class TruncatedError(SynchronizerError):
    """The requested records were truncated: read again from the mark."""


class RevisionError(SynchronizerError):
    """A revision is outside the log, or a range ends before it starts: use revisions that the log returned."""


class InvalidLogError(SynchronizerError):
    """The log has been dropped: open it again."""
