"""What a pair of spout and state promises: the matrix of Trident's state page, in words for people."""

from typing import Literal

from state_backends.spec import Guarantee, Kind

Spout = Literal["opaque", "transactional", "non_transactional"]

EXACTLY_ONCE: Guarantee = "exactly once"
AT_LEAST_ONCE: Guarantee = "at least once"
APPROXIMATE: Guarantee = "approximate"

MATRIX: dict[tuple[Spout, Kind], Guarantee] = {
    ("transactional", "opaque"): EXACTLY_ONCE,
    ("transactional", "transactional"): EXACTLY_ONCE,
    # A replay is counted again.
    ("transactional", "non_transactional"): AT_LEAST_ONCE,
    ("opaque", "opaque"): EXACTLY_ONCE,
    # A replay with other tuples is taken for the first try.
    ("opaque", "transactional"): APPROXIMATE,
    ("opaque", "non_transactional"): AT_LEAST_ONCE,
    # What such a spout loses or repeats, no state can mend.
    ("non_transactional", "opaque"): APPROXIMATE,
    ("non_transactional", "transactional"): APPROXIMATE,
    ("non_transactional", "non_transactional"): APPROXIMATE,
}


def guarantee(spout: Spout, kind: Kind) -> Guarantee:
    """Return `exactly once`, `at least once` (a crash may count a batch again) or `approximate`."""
    return MATRIX[spout, kind]
