"""The guard of a store outside the ledger's database: which attempt may write, which batch readers see, what is there.

Such a store can go back without the ledger: a replica is promoted that lacks the last writes, an older copy is
restored, a full server drops keys. What it lost it lost with the guard's own notes of it, so the notes are compared
with the ledger (comparison.py), at each start and at each batch.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

from tidegauge.state_backends.errors import FencedError, LostWritesError
from tidegauge.state_backends.ledger.batch import Batch, attempt_name
from tidegauge.state_backends.protocols import IBackingMap
from tidegauge.state_backends.reader.scanning import CommittedRows


class Attempt(NamedTuple):
    """An attempt at a batch, as a store that guards itself compares it.

    attempt: 0 is a driver that starts, before its first attempt at the batch after `txid`. token: random, of the
    acquisition that the fence counts. epoch: the ledger's; fences of two epochs are not compared.
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
        """What it is called in the record of its batch, and in no other acquisition or attempt."""
        return attempt_name(self.token, self.attempt)

    def __str__(self) -> str:
        if self.attempt == 0:
            return f"the start of a driver under fence {self.fence}"
        return f"attempt {self.attempt} at batch {self.txid} under fence {self.fence}"


class StoreStatus(NamedTuple):
    """published: the txid that readers go by, 0 before the first. admitted: the batch that was last opened, or 0.

    is_empty: the store has nothing at all of the state. is_rebuilding: a rebuild has begun and not ended. missing_rows:
    how many rows are not there that were counted when they were written.
    """

    published: int
    admitted: int
    is_empty: bool
    is_rebuilding: bool = False
    missing_rows: int = 0


class BatchRecord(NamedTuple):
    """What a store noted of one batch. by: the name of the attempt that was admitted last; "" where none is on record.

    keys: how many keys carry the batch's txid; None where the kind does not tell. is_reverted: False until that attempt
    has reverted those before it. has_written: whether any key was ever written under the batch, reverted since or not.
    """

    by: str = ""
    keys: int | None = None
    is_reverted: bool = True
    has_written: bool = False


class GuardedMap(IBackingMap, CommittedRows, Protocol):
    """Rows that guard themselves: after `admit` only that attempt writes, of all that write under one."""

    def admit(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> None:
        """Let only this attempt at this batch write from now on; the fields are those of Attempt.

        Raises FencedError where a newer one was admitted, one of an equal fence with another token, or, unless this is
        attempt 0, one of another epoch.
        """

    def under(self, fence: int, txid: int, attempt: int, token: str = "", epoch: str = "") -> Self:
        """Return this map as an attempt has it: puts, removals and reverts raise FencedError once a newer one is
        admitted, LostWritesError where the store has forgotten that this one was, or has reverted its batch.

        Attempts after the first write, check and publish only once `revert` has ended.
        """

    def check(self, txid: int, keys: int | None) -> None:
        """Raise LostWritesError unless the batch wrote so many keys; None: how many is unknown. For opaque and
        transactional states. What was written until now is as safe afterwards as the store makes it."""

    def publish(self, txid: int, keys: int | None = None) -> None:
        """Show readers batch `txid`; never goes back, only `revert` does, and ends a rebuild.

        Raises FencedError under an old attempt, LostBatchesError where `keys` differs as for `check`.
        """

    def status(self) -> StoreStatus:
        """Return what the store holds."""

    def record(self, txid: int) -> BatchRecord:
        """Return what the store noted of one of the newest two batches."""

    def begin_rebuild(self) -> None:
        """Forget every row and note, and serve nothing until a batch is published. Killed anywhere it may run again."""

    def check_store(self) -> str:
        """Return a warning for people about the store's settings, "" for none.

        Raises BackendSetupError where it may drop rows by itself, LostBatchesError where it has.
        """


def refuse(state: str, own: Attempt, admitted: Sequence[str | int], epoch: str) -> FencedError | LostWritesError:
    """Return the error of a write by an attempt that is not admitted, or has not reverted those before it.

    admitted: fence, txid, attempt and token; nothing where none is admitted. epoch: that of the admitted one.
    """
    numbers = tuple(int(number) for number in admitted[:3])
    if (*numbers, (*admitted[3:], "")[0], epoch) == own:
        return LostWritesError(
            f"state {state!r}: {own} may not write, it has not reverted the attempts before it: the store has gone "
            "back to before it did; try again, so that it is compared with the ledger"
        )
    other = f"{Attempt(numbers[0], numbers[1], numbers[2])} is admitted" if numbers else "none is admitted"
    where = f"state {state!r}: {own} may not write, {other}"
    if epoch != own.epoch:
        where += f" of epoch {epoch!r}, and this is epoch {own.epoch!r}"
    elif numbers and numbers[0] == own.fence and (*admitted[3:], "")[0] != own.token:
        where += " by another acquisition of the same fence"
    elif numbers < own[:3]:
        return LostWritesError(
            f"{where}: the store has gone back to before this one began; try again, so that it is compared with the "
            "ledger"
        )
    return FencedError(f"{where}; another driver or attempt has taken over, so stop this one")
