"""The guard of a store outside the ledger's database: which attempt may write, which batch readers see, what is there.

Such a store can go back to an older state than the ledger's: a replica that lacks the last writes is promoted, an older
copy is restored, or a full server drops keys. The guard's records are lost together with the data, so they are compared
with the ledger (comparison.py), at each start and at each batch.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, Self, runtime_checkable

from tidegauge.state_backends.errors import FencedError, LostWritesError
from tidegauge.state_backends.ledger.batch import Batch, attempt_name
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.reader.scanning import CommittedRows


class Attempt(NamedTuple):
    """An attempt at a batch, in the form that a store with a guard compares.

    attempt: 0 is a driver that starts, before its first attempt at the batch after `txid`. token: the random token of
    the acquisition that the fence counts. epoch: the ledger's; fences of two epochs are not compared.
    """

    fence: int
    txid: int
    attempt: int
    token: str = ""
    epoch: str = ""

    @classmethod
    def at(cls, batch: Batch) -> Self:
        return cls(batch.fence, batch.txid, batch.attempt, batch.token, batch.epoch)

    @property
    def name(self) -> str:
        """Its name in the record of its batch. No other acquisition or attempt has the same name."""
        return attempt_name(self.token, self.attempt)

    def __str__(self) -> str:
        if self.attempt == 0:
            return f"the start of a driver under fence {self.fence}"
        return f"attempt {self.attempt} at batch {self.txid} under fence {self.fence}"


class StoreStatus(NamedTuple):
    """published: the batch that readers see, 0 before the first. admitted: the batch that was last opened, or 0.

    is_empty: the store has nothing at all of the state. is_rebuilding: a rebuild has begun and not ended. missing_rows:
    how many rows are missing that were counted when they were written.
    """

    published: int
    admitted: int
    is_empty: bool
    is_rebuilding: bool = False
    missing_rows: int = 0


class BatchRecord(NamedTuple):
    """What a store has recorded of a batch. by: the name of the attempt that was admitted last; "" if none is recorded.

    keys: how many keys carry the batch's txid; None for a kind without txids. is_reverted: False until that attempt has
    reverted the earlier ones. has_written: whether the batch has ever written a key, even one that was reverted since.
    """

    by: str = ""
    keys: int | None = None
    is_reverted: bool = True
    has_written: bool = False


class GuardPart(NamedTuple):
    """One of the guards of a state: its status, and its records of some batches by txid."""

    status: StoreStatus
    records: Mapping[int, BatchRecord]


@runtime_checkable
class SpreadMap(Protocol):
    """Rows that several guards protect, because they are on several servers, each of which may go back alone."""

    def parts(self, txid: int) -> Sequence[GuardPart]:
        """Return every guard, with its records of batch `txid` and the two after it."""


class GuardedMap(IBackingMap, CommittedRows, Protocol):
    """Rows with a guard: of all maps that write under an attempt, only that of the admitted attempt can write."""

    def admit(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> None:
        """Let only this attempt at this batch write from now on; the fields are those of Attempt.

        Raises FencedError if a newer one was admitted, one of an equal fence with another token, or, unless this is
        attempt 0, one of another epoch.
        """

    def under(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> Self:
        """Return this map for writing under an attempt. Its puts, removals and reverts raise FencedError once a newer
        one is admitted, LostWritesError if the store has forgotten that this one was admitted or reverted its batch.

        Attempts after the first can write, check and publish only once `revert` has ended.
        """

    def check(self, txid: int, keys: int | None) -> None:
        """Raise LostWritesError unless the batch wrote this number of keys; None: it is unknown. For opaque and
        transactional states. Afterwards, all writes until now are as durable as the store can make them."""

    def publish(self, txid: int, keys: int | None = None) -> None:
        """Show readers batch `txid`, unless they see a newer one, and end a rebuild. Only `revert` takes readers back.

        Raises FencedError under an old attempt, LostBatchesError if the number of keys differs, as for `check`.
        """

    def status(self) -> StoreStatus:
        """Return what the store holds."""

    def record(self, txid: int) -> BatchRecord:
        """Return what the store has recorded of one of the newest two batches."""

    def begin_rebuild(self) -> None:
        """Delete every row and record, and serve nothing until a batch is published. Safe to re-run after a crash."""

    def check_store(self) -> str:
        """Return a warning for people about the store's settings, "" for none.

        Raises BackendSetupError if the store may drop rows by itself, LostBatchesError if it has dropped some.
        """


def refuse(state: str, own: Attempt, admitted: Sequence[str | int], epoch: str) -> FencedError | LostWritesError:
    """Return the error for a write by an attempt that is not admitted, or has not reverted the attempts before it.

    admitted: fence, txid, attempt and token; empty if none is admitted. epoch: the epoch of the admitted one.
    """
    numbers = tuple(int(number) for number in admitted[:3])
    if (*numbers, (*admitted[3:], "")[0], epoch) == own:
        return LostWritesError(
            f"state {state!r}: {own} may not write, because it has not reverted the attempts before it: the store has "
            "gone back to before it did; try again, so that the store is compared with the ledger"
        )
    other = f"{Attempt(numbers[0], numbers[1], numbers[2])} is admitted" if numbers else "no attempt is admitted"
    where = f"state {state!r}: {own} may not write, because {other}"
    if epoch != own.epoch:
        where += f" of epoch {epoch!r}, and this is epoch {own.epoch!r}"
    elif numbers and numbers[0] == own.fence and (*admitted[3:], "")[0] != own.token:
        where += " by another acquisition of the same fence"
    elif numbers < own[:3]:
        return LostWritesError(
            f"{where}: the store has gone back to before this one began; try again, so that the store is compared with "
            "the ledger"
        )
    return FencedError(f"{where}; another driver or attempt has taken over, so stop this one")
