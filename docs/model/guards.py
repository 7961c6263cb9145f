"""The guards of the protocol, each of which can be removed, and the bounds within which a search shows its absence."""

from typing import Literal, NamedTuple

StoreKind = Literal["ledger", "external", "buckets"]


class Bounds(NamedTuple):
    """How far a search goes.

    inputs: for each batch, the names of the inputs that it may have. faults: the most crashes, failures, takeovers,
    replays of committed batches and restores in one history. without: actions that are left out.
    """

    inputs: tuple[str, ...]
    faults: int
    without: frozenset[str] = frozenset()


class GuardRule(NamedTuple):
    """rule: as in README.md. store, bounds: of a search that breaks an invariant once the guard is removed."""

    rule: str
    store: StoreKind
    bounds: Bounds


# Searches with every guard in place; each takes a few seconds.
WHOLE: tuple[tuple[StoreKind, Bounds], ...] = (
    ("ledger", Bounds(("a", "ar", "ab"), faults=1)),
    ("ledger", Bounds(("ar", "b"), faults=2)),
    ("external", Bounds(("ar", "b"), faults=1)),
    ("external", Bounds(("ar", "b"), faults=2, without=frozenset({"copy"}))),
    ("external", Bounds(("a", "ar", "ab"), faults=1, without=frozenset({"copy"}))),
    ("external", Bounds(("ab", "b", "b"), faults=2, without=frozenset({"copy", "fail", "compact"}))),
    ("buckets", Bounds(("ar", "b"), faults=2)),
    ("buckets", Bounds(("a", "r", "b"), faults=1)),
)

ONE_FAULT = Bounds(("ab", "ab"), faults=1)
TWO_FAULTS = Bounds(("ab", "ab"), faults=2)
STORE_GOES_BACK = frozenset({"begin_again", "restore_ledger", "pin"})
LEDGER_GOES_BACK = frozenset({"begin_again", "fail", "restore_store"})

GUARDS: dict[str, GuardRule] = {
    "fence": GuardRule(
        "an attempt begins, writes and commits only while its driver was the last to take over the pipeline",
        "ledger",
        ONE_FAULT,
    ),
    "token": GuardRule(
        "acquisitions are also compared by a random token, because a restored ledger uses a fence again",
        "ledger",
        TWO_FAULTS,
    ),
    "attempt": GuardRule("an attempt writes and commits only while it is the open one", "ledger", ONE_FAULT),
    "original": GuardRule(
        "after a restore of the ledger, nothing is written until a driver has started", "ledger", ONE_FAULT
    ),
    "epoch": GuardRule(
        "a driver that starts on a restored ledger makes a new epoch", "ledger", Bounds(("ab",), faults=2)
    ),
    "revert": GuardRule("before a retry writes, it reverts the writes of the attempts before it", "ledger", ONE_FAULT),
    "replay": GuardRule(
        "a row that the batch has already written is computed again from its previous version", "ledger", ONE_FAULT
    ),
    "used up": GuardRule(
        "the committed batch is replayed only if the batch after it has not been opened", "ledger", TWO_FAULTS
    ),
    "one task": GuardRule("one task per attempt writes a key", "ledger", ONE_FAULT),
    "snapshot": GuardRule("a reader sees the previous version of a row that a later batch wrote", "ledger", ONE_FAULT),
    "moved on": GuardRule(
        "a row whose two versions are both newer than the pinned commit is refused",
        "external",
        Bounds(("a", "a", "a"), faults=0),
    ),
    "pin": GuardRule(
        "each read of a pinned commit compares it with the present commit of that number",
        "external",
        Bounds(("ab",), faults=2, without=frozenset({"copy"})),
    ),
    "forgotten": GuardRule(
        "a revert marks the row: its previous version is unknown from then on, which is not the same as absent",
        "external",
        Bounds(("a", "a", "ab"), faults=1, without=frozenset({"copy"})),
    ),
    "oldest": GuardRule(
        "compaction records from which batch on the absence of a key is known",
        "external",
        Bounds(("a", "r", "b"), faults=0),
    ),
    "settled": GuardRule(
        "compaction keeps tombstones that the committed batch wrote, because it may be replayed",
        "external",
        Bounds(("a", "ar"), faults=2, without=frozenset({"copy"})),
    ),
    "admission": GuardRule(
        "an external store lets only the last admitted attempt write",
        "external",
        Bounds(("ab",), faults=1),
    ),
    "order": GuardRule(
        "an attempt that is older than the admitted one is not admitted",
        "external",
        Bounds(("ab", "ab"), faults=1, without=frozenset({"copy"})),
    ),
    "behind": GuardRule("a store that lacks a committed batch is refused", "external", ONE_FAULT),
    "ahead": GuardRule(
        "a store in which a batch after the next one was opened is refused",
        "external",
        Bounds(("a", "ab"), faults=2, without=LEDGER_GOES_BACK),
    ),
    "content": GuardRule(
        "the committed batch in the store must be of the attempt that the ledger has committed",
        "external",
        Bounds(("ar", "b"), faults=2, without=STORE_GOES_BACK | {"crash", "fail", "compact"}),
    ),
    "labels": GuardRule(
        "a reader compares the attempt that was published with the one that the ledger has committed",
        "external",
        Bounds(("ab",), faults=3, without=frozenset({"fail", "restore_ledger", "compact", "pin"})),
    ),
    "ended": GuardRule(
        "the tasks of a retry write only once the store has recorded that the revert has ended",
        "external",
        Bounds(("ab",), faults=2, without=STORE_GOES_BACK | {"fail"}),
    ),
    "keys": GuardRule(
        "a batch is committed and published only if the store has as many of its keys as were written",
        "external",
        ONE_FAULT,
    ),
    "mend": GuardRule(
        "the next admission publishes the committed batch, and reverts a batch that the ledger lacks",
        "external",
        ONE_FAULT,
    ),
    "commit": GuardRule(
        "a reader identifies a commit by epoch, txid and attempt, because another attempt has the same epoch and txid",
        "buckets",
        Bounds(("ab",), faults=2),
    ),
    "every node": GuardRule(
        "every node of a spread state admits an attempt, even if the attempt has no rows for it",
        "buckets",
        Bounds(("ab",), faults=1),
    ),
    "every bucket": GuardRule(
        "a retry reverts every bucket of a spread state, even if it has no rows for it",
        "buckets",
        Bounds(("ab",), faults=1),
    ),
}
