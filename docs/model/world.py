"""The world of the model: what the ledger, a store, its drivers and a reader hold at one moment.

Everything is a tuple, so that two equal worlds are one state of the search. Numbers count from 1. A value is the tuple
of the batches that it has counted, such as ("1a", "2b"); None is a key that is removed or was never there.
"""

from collections.abc import Iterable
from typing import NamedTuple

KEYS = ("x", "y")

# What a batch does to each key, by the name of its input. A key that is not named gets no rows.
INPUTS = {
    "a": {"x": "add", "y": "add"},
    "b": {"y": "add"},
    "r": {"x": "remove", "y": "add"},
}

# In place of the txid of a previous version: there was none, or a revert has used it up.
NEVER, FORGOTTEN = 0, -1

Value = tuple[str, ...] | None
Name = tuple[int, int]  # of an attempt: the token of its acquisition, and its number
Numbers = tuple[int, int, int, int]  # of an attempt: fence, txid, number and token


class Row(NamedTuple):
    """A stored row with its previous version. A value of None is a tombstone."""

    value: Value
    txid: int
    prev: Value = None
    prev_txid: int = NEVER


class Attempt(NamedTuple):
    """One attempt at a batch. token, epoch: random in the code, and never given out twice here."""

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
    """A committed batch: what it held, and which attempt was committed."""

    input: str
    by: Name


class Ledger(NamedTuple):
    """The pipeline's row. history: the committed batches. open: the number of the open attempt, 0 for none.

    is_original: False from a restore on, until the next driver starts and makes a new epoch.
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
    """What an external store noted of a batch: the attempt that was admitted last, and the keys it has written.

    ended: that attempt has reverted what the attempts before it wrote.
    """

    txid: int
    by: Name
    keys: frozenset[str] = frozenset()
    ended: bool = True


class Guard(NamedTuple):
    """The guard of an external store.

    admitted: the attempt that may write. by: of each batch up to the published one, the attempt that was published.
    shown: what readers saw then, which no code keeps and the invariants need.
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
    """A driver and how far it is. done: the tasks of its attempt that have reported, or the rows it has reverted."""

    phase: str = "down"
    attempt: Attempt = Attempt(0, 0, 0, 0, 0, "")
    done: frozenset[str] = frozenset()


class Pin(NamedTuple):
    """A reader that reads keys of one commit one after another. values: what that commit holds."""

    txid: int
    label: tuple[object, ...]
    values: tuple[Value, ...]


class World(NamedTuple):
    """tasks: attempts whose tasks may still write. faults: how many more may come. token: the last one given out."""

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
    """Return a key's value after parts of a batch's input; a key has one part, unless several tasks write it."""
    act = INPUTS[name].get(key)
    if act == "remove":
        return None
    return (value or ()) + tuple(f"{txid}{name}" + "'" * part for part in parts) if act else value


def folded(history: Iterable[Commit], parts: int = 1) -> tuple[Value, ...]:
    """Return what each key holds once these batches are counted once each, in their order."""
    values: dict[str, Value] = dict.fromkeys(KEYS)
    for txid, commit in enumerate(history, start=1):
        for key in KEYS:
            values[key] = changed(values[key], txid, commit.input, key, range(parts))
    return tuple(values.values())
