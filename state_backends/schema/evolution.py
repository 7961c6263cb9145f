"""Evolution: how a declaration differs from the stored one, and which differences a migration can bridge.

A new measure only adds columns; a changelog that users have turned off is dropped. Another number of partitions, wider
numbers and a new changelog are bridged by copying the rows. Differences that would change the meaning of counted rows
are refused. In a backend that does not copy rows, only a new measure is bridged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegauge.state_backends.protocols import BACKENDS
from tidegauge.state_backends.spec.types import TYPES

Definition = Mapping[str, Any]

# What a number may become without losing a digit, for key columns and for measures.
WIDER = [(sql_type, TYPES[sql_type.widens_to]) for sql_type in TYPES.values() if sql_type.widens_to]
WIDER_KEYS = {(narrow.name, wide.name) for narrow, wide in WIDER if narrow.is_key and wide.is_key}
WIDER_MEASURES = {(narrow.name, wide.name) for narrow, wide in WIDER if narrow.is_measure and wide.is_measure}

# The values of members that a definition lacks, because it was stored before they existed.
UNSAID: dict[str, Any] = {"backend": "postgres", "tiles": None}


@dataclass(frozen=True)
class Evolution:
    """new: measures to add. rewritten: differences that copying the rows bridges. refused: those that nothing bridges.
    dropped: differences that drop something because users asked for it."""

    new: list[str]
    rewritten: list[str]
    refused: list[str]
    dropped: list[str] = field(default_factory=list)

    @property
    def differences(self) -> list[str]:
        return [*self.refused, *self.rewritten, *self.dropped, *(f"measure {measure!r} is new" for measure in self.new)]

    @property
    def work(self) -> str:
        """The name, in state_lock.py, of the work that bridges the differences."""
        return "migration" if self.rewritten else "declaration"

    @property
    def way_out(self) -> str:
        """Say what to do about what is refused."""
        again = (
            "run with --reprocess, which counts the input again under the new one; or feed a state with another name"
        )
        if any(difference.startswith("backend ") for difference in self.refused):
            again = (
                "move its rows with `tidegauge move STATE --to BACKEND`; or run with --reprocess to feed it "
                "again in its new place; in a backend that --reprocess cannot feed, declare a state with a new "
                "name"
            )
        if any(difference.startswith("partitions ") for difference in self.refused):
            again = (
                "move its rows with `tidegauge move STATE --to postgres`, start a driver with the new number there, "
                "and move them back; or feed a state with another name"
            )
        return f"restore the declaration, or {again}"


def compare(held: Definition, declared: Definition, *, drops_changelog: bool = False) -> Evolution:
    """Compare two definitions as the catalog stores them. drops_changelog: whether a missing one may be dropped."""
    held, declared = {**UNSAID, **held}, {**UNSAID, **declared}
    dropped: list[str] = []
    if drops_changelog and held["changelog"] and not declared["changelog"]:
        dropped = ["changelog is dropped"]
        held["changelog"] = False
    parts = [_compare_part(part, held[part], declared[part]) for part in held if held[part] != declared[part]]
    copies = BACKENDS[declared["backend"]].tables is not None
    found = [(words, bridged and copies) for part in parts for words, bridged in part]
    return Evolution(
        new=[measure for measure in declared["measures"] if measure not in held["measures"]],
        rewritten=[words for words, bridged in found if bridged],
        refused=[words for words, bridged in found if not bridged],
        dropped=dropped,
    )


def _compare_part(part: str, was: Any, now: Any) -> list[tuple[str, bool]]:
    """Return a description of each difference, and whether copying the rows bridges it."""
    if part == "measure_order":
        return []
    if part == "tiles" and was and now and was.keys() == now.keys():
        return []  # how long each is kept concerns the next compaction only
    if part == "measures":
        return [_compare_measure(name, was[name], now.get(name)) for name in was if was[name] != now.get(name)]
    bridged = part == "partitions" or (part == "changelog" and now) or (part == "key" and _is_wider_key(was, now))
    return [(f"{part} was {_shown(was)}, is {_shown(now)}", bool(bridged))]


def _compare_measure(name: str, was: Definition, now: Definition | None) -> tuple[str, bool]:
    if now is None:
        return f"measure {name!r} is gone", False
    types = was["arguments"].get("type"), now["arguments"].get("type")
    wider = was["aggregator"] == now["aggregator"] and types in WIDER_MEASURES
    same_otherwise = was["arguments"] | {"type": None} == now["arguments"] | {"type": None}
    words = f"measure {name!r} was {_shown(was)}, is {_shown(now)}"
    if was["aggregator"] == "sum" and types == ("double precision", "numeric"):
        words += ", the default of a Sum without a type (type='double precision' keeps the stored doubles)"
    return words, wider and same_otherwise


def _is_wider_key(was: Mapping[str, str], now: Mapping[str, str]) -> bool:
    changes = {(was.get(column), now.get(column)) for column in {*was, *now} if was.get(column) != now.get(column)}
    return changes <= WIDER_KEYS


def _shown(part: Any) -> str:
    if isinstance(part, dict) and "aggregator" in part:
        arguments = ", ".join(
            f"{name}={value!r}" for name, value in sorted(part["arguments"].items()) if value is not None
        )
        return f"{part['aggregator']}({arguments})"
    return repr(part)
