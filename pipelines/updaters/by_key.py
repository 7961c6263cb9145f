"""One read and one write of a state per call, whatever number of keys the call is about."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.errors import PipelineError
from pipelines.functions import BatchState
from state_backends.row import Key
from state_backends.spec import StateSpec

# Makes the new value of a key of the one kept, None for absent, and the key's tuples of this batch.
Fold = Callable[[Any, list[Mapping[str, Any]]], Any]


def fold_by_key(state: BatchState, tuples: Sequence[Mapping[str, Any]], key: Sequence[str], fold: Fold) -> None:
    """Replace the value of every key that has tuples by what `fold` makes of it.

    key: the columns that are the state's key. fold: leaves the value it is given as it is and returns the new one, or
    None to remove it. A value that stays the same is not written, so its ttl runs on.
    """
    groups: dict[Key, list[Mapping[str, Any]]] = {}
    for row in tuples:
        groups.setdefault(tuple(row[name] for name in key), []).append(row)
    kept = state.multi_get(list(groups))
    folded = [fold(value, rows) for value, rows in zip(kept, groups.values(), strict=True)]
    changed = {each: new for each, new, old in zip(groups, folded, kept, strict=True) if new != old}
    state.multi_put(list(changed), list(changed.values()))


def check_keeper(spec: StateSpec, *, ttl: bool = False) -> None:
    """Raise PipelineError where a state cannot keep what waits, or what was seen.

    ttl: whether it may forget. What a batch that is tried again emits must be what it emitted before, which only an
    opaque state can see to.
    """
    if spec.measures or spec.kind != "opaque" or (spec.ttl and not ttl):
        raise PipelineError(
            f"state {spec.name!r}: cannot keep what waits; declare it opaque, with value='jsonb'"
            + ("" if ttl else " and without a ttl, which would lose events")
        )
