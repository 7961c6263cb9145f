"""The guarantee of each pair of spout kind and state kind: the matrix of Trident's state documentation.

docs/which-kind.md shows the same table and explains it.
"""

from typing import Literal

from tidegauge.state_backends.spec.state_spec import Guarantee, Kind

Spout = Literal["opaque", "transactional", "non_transactional"]

EXACTLY_ONCE: Guarantee = "exactly once"
AT_LEAST_ONCE: Guarantee = "at least once"
APPROXIMATE: Guarantee = "approximate"

MATRIX: dict[tuple[Spout, Kind], Guarantee] = {
    ("transactional", "opaque"): EXACTLY_ONCE,
    ("transactional", "transactional"): EXACTLY_ONCE,
    # At least once, because a replay is counted again.
    ("transactional", "non_transactional"): AT_LEAST_ONCE,
    ("opaque", "opaque"): EXACTLY_ONCE,
    # Approximate, because a replay with other tuples is skipped as already counted.
    ("opaque", "transactional"): APPROXIMATE,
    ("opaque", "non_transactional"): AT_LEAST_ONCE,
    # Approximate, because no state can correct what such a spout loses or repeats.
    ("non_transactional", "opaque"): APPROXIMATE,
    ("non_transactional", "transactional"): APPROXIMATE,
    ("non_transactional", "non_transactional"): APPROXIMATE,
}


def guarantee(spout: Spout, kind: Kind) -> Guarantee:
    """Return `exactly once`, `at least once` (a crash may count a batch again) or `approximate`.

    spout: what the source promises on replay. kind: of the state.
    """
    return MATRIX[spout, kind]
