"""The guards of the protocol, each of which can be taken out, and the bounds in which its absence is seen."""

from typing import Literal, NamedTuple

StoreKind = Literal["ledger", "external", "buckets"]


class Bounds(NamedTuple):
    """How far a search goes.

    inputs: per batch, the names of what it may hold; there are as many batches. faults: how many crashes, failures,
    takeovers, commits that come again and restores a history has at most. without: actions that are left out.
    """

    inputs: tuple[str, ...]
    faults: int
    without: frozenset[str] = frozenset()


class GuardRule(NamedTuple):
    """rule: in words. store, bounds: of a search that finds an invariant broken once the guard is taken out."""

    rule: str
    store: StoreKind
    bounds: Bounds


# Searches with every guard in place, which take some seconds each.
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
        "an attempt begins, writes and commits only while its driver was the last to take the pipeline over",
        "ledger",
        ONE_FAULT,
    ),
    "token": GuardRule(
        "acquisitions are compared by a random token too, since a restored ledger gives a fence out again",
        "ledger",
        TWO_FAULTS,
    ),
    "attempt": GuardRule("an attempt writes and commits only while it is the open one", "ledger", ONE_FAULT),
    "original": GuardRule(
        "under a ledger that was restored nothing is written until a driver has started", "ledger", ONE_FAULT
    ),
    "epoch": GuardRule(
        "a driver that starts on a restored ledger makes a new epoch", "ledger", Bounds(("ab",), faults=2)
    ),
    "revert": GuardRule("a retry reverts what the attempts before it wrote, before it writes", "ledger", ONE_FAULT),
    "replay": GuardRule(
        "a row that the batch has written already is computed again from its previous version", "ledger", ONE_FAULT
    ),
    "used up": GuardRule(
        "the committed batch comes again only if the batch after it has not been opened", "ledger", TWO_FAULTS
    ),
    "one task": GuardRule("one task per attempt writes a key", "ledger", ONE_FAULT),
    "snapshot": GuardRule("a reader sees the previous version of a row that a later batch wrote", "ledger", ONE_FAULT),
    "moved on": GuardRule(
        "a row whose two versions are both newer than the pinned commit is refused",
        "external",
        Bounds(("a", "a", "a"), faults=0),
    ),
    "pin": GuardRule(
        "each read of a pinned commit compares it with the commit of that number that is there now",
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
        "compaction keeps tombstones that the committed batch wrote, since it may come again",
        "external",
        Bounds(("a", "ar"), faults=2, without=frozenset({"copy"})),
    ),
    "admission": GuardRule(
        "an external store lets only the attempt write that was admitted last",
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
        "the next admission publishes the committed batch, and reverts what the ledger does not know",
        "external",
        ONE_FAULT,
    ),
    "commit": GuardRule(
        "a reader knows a commit by epoch, txid and attempt, as the first two are those of the attempt before, too",
        "buckets",
        Bounds(("ab",), faults=2),
    ),
    "every node": GuardRule(
        "of a spread state every node admits an attempt, also one that the attempt has no rows for",
        "buckets",
        Bounds(("ab",), faults=1),
    ),
    "every bucket": GuardRule(
        "of a spread state a retry reverts every bucket, also one that it has no rows for",
        "buckets",
        Bounds(("ab",), faults=1),
    ),
}
