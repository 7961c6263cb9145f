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
    """A package is not installed that this needs: install the extra that the message names."""


class SpecError(TidegaugeError):
    """A declaration is wrong: correct the StateSpec."""


class SchemaVersionError(TidegaugeError):
    """The database's schema is not one that this version can use: do what the message says."""


class ServerVersionError(TidegaugeError):
    """The database server is too old: upgrade it."""


class SpecMismatchError(TidegaugeError):
    """A declaration differs from the stored state: restore it, or reprocess into a new state."""


class KeyShapeError(TidegaugeError):
    """A key does not fit the state's key columns: correct the key."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class FilterError(TidegaugeError):
    """A condition does not fit the state: correct the condition."""


class RangeTooLargeError(TidegaugeError):
    """A range has more keys than may be read to sort them: ask for a smaller one, or in key order."""


class ValueShapeError(TidegaugeError):
    """A value cannot be stored in the state: correct the value."""


class FoldRangeError(TidegaugeError):
    """A fold left the range of its column: the key keeps its value, and its share of the batch is a dead letter."""

    @classmethod
    def of(cls, measure: str, sql_type: str, stored: object, partial: object) -> Self:
        """Return the error of two numbers that a measure cannot join."""
        return cls(f"measure {measure}: {stored} joined with {partial} is out of the range of {sql_type}")


class MovedOnError(TidegaugeError):
    """Batches were published faster than a long read advanced, or one was reverted: read again."""


class DuplicateKeyError(TidegaugeError):
    """One write has a key twice: combine the rows of a key before writing."""


class RepeatedUpdateError(TidegaugeError):
    """A batch updates a key of a transactional state in a second call: update it in one, or make the writes atomic."""


class SecondWriterError(TidegaugeError):
    """Two tasks of one attempt wrote the same key, so that one of them would be lost: try the batch again."""

    # A task that Spark ran twice without saying so is not distinguished from another one, and does not come twice.
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
    """A backend cannot do what was asked: use a backend that can, or do without."""


class FencedError(TidegaugeError):
    """Another driver or attempt has taken over: stop this one."""

    # For a task: it may be a late one of an attempt before this. A driver that gets it itself stops at once.
    retryable = True


class StateBusyError(TidegaugeError):
    """Another work is under way on a state's tables: try again when it has ended. work: its name in state_lock.py."""

    retryable = True

    def __init__(self, message: str, work: str = "") -> None:
        super().__init__(message)
        self.work = work


class StateGapError(TidegaugeError):
    """Batches were committed without a state or measure that is declared again: reprocess, rename it, or accept it."""


class RolesError(TidegaugeError):
    """Database roles cannot be set up over this connection: connect as the message says."""


class TablesBusyError(TidegaugeError):
    """Tables to be changed have been read for minutes: wait for the readers that the message names, or end them."""

    retryable = True


class DependentObjectsError(TidegaugeError):
    """Views of users, or the like, stand on tables that a change replaces: drop them, and create them again after."""


class ClockError(TidegaugeError):
    """The clock of the database, or of this host, is wrong: set it right."""

    # A clock may be set right while the driver waits.
    retryable = True


class PipelineHeldError(TidegaugeError):
    """A live driver holds the pipeline: stop that driver first."""


class LostWritesError(TidegaugeError):
    """A store has lost writes of the open batch that it had acknowledged: try the batch again."""

    retryable = True


class FindingError(TidegaugeError):
    """What the ledger says of a state and what its store holds do not agree: do what the message says.

    Until then no driver feeds the state, and what it holds is not served. state: its name.
    """

    def __init__(self, message: str, state: str = "") -> None:
        super().__init__(message)
        self.state = state


class LostBatchesError(FindingError):
    """A store no longer has what was committed to it: restore it, or rebuild the state."""


class StoreAheadError(FindingError):
    """A store has batches that the ledger has not, or others: restore the ledger, or rebuild the state."""


class RebuildingError(FindingError):
    """A rebuild of the state has not ended: let it end, or run it again."""


class BatchOrderError(TidegaugeError):
    """A batch is neither the next nor the last committed one: the checkpoint and the ledger disagree."""


class RewindError(TidegaugeError):
    """A pipeline cannot be taken back to that batch: choose one of those that the message names, or reprocess."""


class CheckpointTornError(TidegaugeError):
    """A power cut has left the checkpoint with files that are empty or cut off: restore a whole copy of it."""


class InputChangedError(TidegaugeError):
    """A batch that was counted comes again with other input: restore the checkpoint, or do what the message says."""


class SourceReplacedError(TidegaugeError):
    """A topic, folder or the like was deleted and made again under its name: reprocess, or rebind to the new one."""


class ResumeError(TidegaugeError):
    """The ledger cannot say where the sources of a pipeline stand: restore its checkpoint, or reprocess."""


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
        error.args = (f"state {state!r}: no batch is on record up to {at}, the first one is of {first}; ask for later",)
        return error


class NotCommittedError(TidegaugeError):
    """A requested batch is not committed: wait for it, or ask for an earlier one. newest: the committed one."""

    def __init__(self, state: str, txid: int, newest: int) -> None:
        super().__init__(
            f"state {state!r}: batch {txid} is not committed, the newest one is {newest}; wait for it, or ask for an "
            "earlier one"
        )
        self.newest = newest


class CheckpointMismatchError(TidegaugeError):
    """A pipeline came back with another checkpoint: restore it, use new states, or rebind."""


class SwapError(TidegaugeError):
    """A shadow pipeline cannot be swapped in: finish it, or abort it and begin again."""


class ShorterInputError(TidegaugeError):
    """A reprocess would count less than the states have counted: see why, or swap it in with --accept-shorter."""


class ChangedResultError(TidegaugeError):
    """A reprocess gives other results than the batches did: see why, or accept that with --accept-changes."""


class RollBackError(TidegaugeError):
    """What a reprocess replaced cannot be put back: the message says why, and what to do."""


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
    """A declaration names what was retired or renamed: do what the message says."""


class LifeError(TidegaugeError):
    """A state or pipeline cannot be retired, renamed or moved: the message says why, and what to do."""


class BackfillError(TidegaugeError):
    """A pipeline's history cannot be counted, or is in the way: do what the message says."""


class KeyValueStoreError(TidegaugeError):
    """Base class of the errors of a key-value store."""


class StoreClosedError(KeyValueStoreError):
    """The store was closed: open a new one."""


class PositionError(KeyValueStoreError):
    """A position lies outside the log: ask `plan_restore` what to restore instead."""


class SynchronizerError(TidegaugeError):
    """Base class of the errors of a synchronizer and its log."""


class NoInitialStateError(SynchronizerError):
    """The log has no initial value: call `initialize` first."""


class ContentionError(SynchronizerError):
    """Every attempt at an update met a newer record: retry later, or write without a condition."""


class RecordTooLargeError(SynchronizerError):
    """A record, or the state after it, is over the size limit: write less, or split the state over several logs."""


class CorruptedStateError(SynchronizerError):
    """A record is neither an initial value nor a list of updates: something else writes to this log."""


class TruncatedError(SynchronizerError):
    """The requested records were truncated: read again from the mark."""


class RevisionError(SynchronizerError):
    """A revision lies outside the log, or a range ends before it starts: use revisions that the log returned."""


class InvalidLogError(SynchronizerError):
    """The log has been dropped: open it again."""
