"""The answers that a reader gets, and the invariants that must hold in every world."""

from docs.model.guards import GUARDS, Bounds, StoreKind
from docs.model.world import FORGOTTEN, KEYS, NEVER, Pin, Row, Store, Value, World, folded

# The answer to a reader that has to read again, instead of a value.
REFUSED: Value = ("refused",)


class Readers:
    """Reads of a state in the ledger's database, or in an external store. off: guards that are removed."""

    def __init__(self, kind: StoreKind, bounds: Bounds, off: frozenset[str] = frozenset()) -> None:
        unknown = sorted(off - GUARDS.keys())
        if unknown:
            raise ValueError(f"unknown guards {unknown}; the model has {sorted(GUARDS)}")
        self.external = kind == "external"
        self.bounds = bounds
        self.off = off
        self.parts = 1 if self.on("one task") else 2

    def on(self, guard: str) -> bool:
        return guard not in self.off

    def readable(self, world: World) -> int | None:
        """Return the batch that a reader sees now; None if it is refused because store and ledger differ."""
        ledger, guard = world.ledger, world.store.guard
        if not self.external:
            return ledger.committed
        txid = guard.published
        if txid > ledger.committed:
            # An undone commit is shown until its revert begins.
            return txid if txid == ledger.committed + 1 and ledger.open else None
        other = txid > 0 and guard.by[-1] != ledger.history[txid - 1].by
        return None if txid < ledger.committed - 1 or (other and self.on("labels")) else txid

    def label(self, world: World, txid: int) -> tuple[object, ...]:
        """Return what distinguishes a commit from others with the same number; empty if it does not exist."""
        if not self.external:
            ledger = world.ledger
            number = ledger.history[txid - 1].by[1] if txid <= ledger.committed and self.on("commit") else 0
            return (ledger.epoch, number) if txid <= ledger.committed else ()
        return world.store.guard.by[txid - 1 : txid]

    def is_still(self, world: World, pin: Pin) -> bool:
        """Whether the pinned commit still exists."""
        return not self.on("pin") or self.label(world, pin.txid) == pin.label

    def answers(self, store: Store, txid: int) -> tuple[Value, ...]:
        return tuple(self.answer(store, txid, row) for row in store.rows)

    def answer(self, store: Store, txid: int, row: Row | None) -> Value:
        """Return the answer for a key to a reader of batch `txid`."""
        if row is not None and (row.txid <= txid or not self.on("snapshot")):
            return row.value
        if row is None or row.prev_txid == NEVER:
            return REFUSED if txid < store.oldest else None
        if row.prev_txid == FORGOTTEN or (row.prev_txid > txid and self.on("moved on")):
            return REFUSED
        return row.prev

    def violation(self, world: World) -> str:
        """Return a description of the invariant that does not hold; "" if all hold."""
        return world.broken or self.wrong_value(world) or self.wrong_pin(world)

    def wrong_value(self, world: World) -> str:
        """The committed value of each key is the fold of the committed batches, each counted once."""
        txid = self.readable(world)
        if txid is None:
            return ""
        right = world.store.guard.shown
        if txid <= world.ledger.committed:
            right = folded(world.ledger.history[:txid], self.parts)
        return differing(f"a reader of batch {txid}", self.answers(world.store, txid), right)

    def wrong_pin(self, world: World) -> str:
        """A pinned read returns the values of its commit, or is refused."""
        pin = world.pin
        if pin is None or not self.is_still(world, pin):
            return ""
        answers = self.answers(world.store, pin.txid)
        told = tuple(right if answer == REFUSED else answer for answer, right in zip(answers, pin.values, strict=True))
        return differing(f"the reader that has pinned batch {pin.txid}", told, pin.values)


def differing(reader: str, told: tuple[Value, ...], right: tuple[Value, ...]) -> str:
    wrong = [
        f"{key} is {shown(one)}, and was committed as {shown(other)}"
        for key, one, other in zip(KEYS, told, right, strict=True)
        if one != other
    ]
    return f"{reader} is told: {'; '.join(wrong)}" if wrong else ""


def shown(value: Value) -> str:
    return "missing" if value is None else "+".join(value)
