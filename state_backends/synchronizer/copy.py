"""Copy: the shared object as one client has it, and what a record of the log makes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from state_backends.synchronizer.errors import CorruptedStateError
from state_backends.synchronizer.revisioned_stream import Entry

Apply = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Copy:
    """state, as it was at `revision`. base: where the initial record is that it was rebuilt from."""

    state: Any
    revision: int
    base: int


def after(copy: Copy | None, entry: Entry, apply: Apply, log: str) -> Copy | None:
    """Return the copy as it is after one more record; None before the first initial one.

    Raises CorruptedStateError where the record is neither an initial value nor a list of updates.
    """
    match entry.record:
        case {"init": value} if value is not None:
            return Copy(value, entry.revision, base=entry.revision - 1)
        case {"updates": list(updates)}:
            # Before the first initial record there is nothing to apply them to, and it holds them already.
            return copy and Copy(applied(copy.state, updates, apply), entry.revision, copy.base)
    raise CorruptedStateError(
        f"synchronizer {log!r}: the record before revision {entry.revision} is neither an initial value nor a list of "
        "updates; something else writes to this log"
    )


def applied(state: Any, updates: list[Any], apply: Apply) -> Any:
    """Return the state after the updates, in their order."""
    for update in updates:
        state = apply(state, update)
    return state
