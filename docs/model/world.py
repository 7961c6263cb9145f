"""The world of the model: the state of the ledger, a store, the drivers and a reader at one moment.

Everything is a tuple, so that two equal worlds are one state of the search. Numbers count from 1. A value is the tuple
of the batches that it has counted, such as ("1a", "2b"); None is a key that was removed or never existed.
"""

from collections.abc import Iterable
from typing import NamedTuple

KEYS = ("x", "y")

# The effect of a batch on each key, by the name of its input. The batch has no rows for other keys.
INPUTS = {
    "a": {"x": "add", "y": "add"},
    "b": {"y": "add"},
    "r": {"x": "remove", "y": "add"},
}

# Instead of the txid of a previous version: there was none, or a revert has used it up.
NEVER, FORGOTTEN = 0, -1

Value = tuple[str, ...] | None
Name = tuple[int, int]  # of an attempt: the token of its driver's acquisition, and its number
Numbers = tuple[int, int, int, int]  # of an attempt: fence, txid, number and token


class Row(NamedTuple):
    """A stored row with its previous version. A value of None is a tombstone."""

    value: Value
    txid: int
    prev: Value = None
    prev_txid: int = NEVER


class Attempt(NamedTuple):
    """One attempt at a batch. token, epoch: random in the code; here they are never used twice."""

    fence: int
    token: int
    epoch: int
    txid: int
    number: int
    input: str

    @property
    def name(self) -> Name:
        return self.token, self.number


class Commit(NamedTuple):
    """A committed batch: its input, and which attempt was committed."""

    input: str
    by: Name


class Ledger(NamedTuple):
    """The pipeline's row. history: the committed batches. open: the number of the open attempt, 0 for none.

    is_original: False after a restore, until the next driver starts and creates a new epoch.
    """

    epoch: int = 1
    fence: int = 0
    token: int = 0
    history: tuple[Commit, ...] = ()
    open: int = 0
    is_original: bool = True

    @property
    def committed(self) -> int:
        return len(self.history)


class Note(NamedTuple):
    """An external store's record of a batch: the attempt that was admitted last, and the keys it has written.

    ended: that attempt has reverted the writes of the attempts before it.
    """

    txid: int
    by: Name
    keys: frozenset[str] = frozenset()
    ended: bool = True


class Guard(NamedTuple):
    """The guard of an external store.

    admitted: the attempt that may write. by: for each batch up to the published one, the attempt that was published.
    shown: the values that readers saw at the last publication. The code does not store them; the invariants need them.
    """

    admitted: Numbers = (0, 0, 0, 0)
    epoch: int = 1
    published: int = 0
    by: tuple[Name, ...] = ()
    notes: tuple[Note, ...] = ()
    shown: tuple[Value, ...] = (None,) * len(KEYS)

    def note(self, txid: int) -> Note | None:
        return next((note for note in self.notes if note.txid == txid), None)


class Store(NamedTuple):
    """The rows of a state. oldest: compaction has removed rows that a read of an older batch could need.

    nodes: the attempt that each key's node has admitted, if the state is spread by buckets.
    """

    rows: tuple[Row | None, ...] = (None,) * len(KEYS)
    oldest: int = 0
    guard: Guard = Guard()
    nodes: tuple[Numbers, ...] = ((0, 0, 0, 0),) * len(KEYS)

    def node(self, key: str) -> Numbers:
        return self.nodes[KEYS.index(key)]

    def admit(self, key: str, numbers: Numbers) -> "Store":
        return self._replace(
            nodes=tuple(numbers if name == key else kept for name, kept in zip(KEYS, self.nodes, strict=True))
        )

    def row(self, key: str) -> Row | None:
        return self.rows[KEYS.index(key)]

    def put(self, key: str, row: Row | None) -> "Store":
        return self._replace(
            rows=tuple(row if name == key else kept for name, kept in zip(KEYS, self.rows, strict=True))
        )


class Driver(NamedTuple):
    """A driver and its phase. done: the tasks of its attempt that have reported, or the rows it has reverted."""

    phase: str = "down"
    attempt: Attempt = Attempt(0, 0, 0, 0, 0, "")
    done: frozenset[str] = frozenset()


class Pin(NamedTuple):
    """A reader that reads keys of one commit one after another. values: those of that commit."""

    txid: int
    label: tuple[object, ...]
    values: tuple[Value, ...]


class World(NamedTuple):
    """tasks: attempts whose tasks may still write. faults: how many more may occur. token: the last one used."""

    ledger: Ledger = Ledger()
    store: Store = Store()
    drivers: tuple[Driver, ...] = (Driver(), Driver())
    tasks: tuple[Attempt, ...] = ()
    pin: Pin | None = None
    copy: tuple[Ledger, Store] | None = None
    faults: int = 0
    token: int = 0
    broken: str = ""


def changed(value: Value, txid: int, name: str, key: str, parts: Iterable[int]) -> Value:
    """Return a key's value after parts of a batch's input. A key has one part, unless several tasks write it."""
    act = INPUTS[name].get(key)
    if act == "remove":
        return None
    return (value or ()) + tuple(f"{txid}{name}" + "'" * part for part in parts) if act else value


def folded(history: Iterable[Commit], parts: int = 1) -> tuple[Value, ...]:
    """Return the value of each key after each of these batches was counted once, in their order."""
    values: dict[str, Value] = dict.fromkeys(KEYS)
    for txid, commit in enumerate(history, start=1):
        for key in KEYS:
            values[key] = changed(values[key], txid, commit.input, key, range(parts))
    return tuple(values.values())
