"""The updates and generators of the worked cases and the other tests (conventions of samza_pravega.json)."""

from collections.abc import Callable
from typing import Any

APPLIES: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda state, value: value,
    "add": lambda state, value: sorted({*state, value}),
    "remove": lambda state, value: [other for other in state if other != value],
    "clear": lambda state, value: [],
    "put": lambda state, pair: state | {pair[0]: pair[1]},
    "del": lambda state, key: {other: value for other, value in state.items() if other != key},
    "incr": lambda state, by: state + by,
}

GENERATORS: dict[str, Callable[..., list[Any]]] = {
    "always": lambda state, updates: updates,
    "never": lambda state: [],
    "add_if_absent": lambda state, value: [] if value in state else [{"add": value}],
    "remove_if_present": lambda state, value: [{"remove": value}] if value in state else [],
    "clear_if_nonempty": lambda state: [{"clear": True}] if state else [],
    "map_replace_if": lambda state, key, old, new: [{"put": [key, new]}] if state.get(key) == old else [],
    "map_put_if_absent": lambda state, key, value: [] if key in state else [{"put": [key, value]}],
    "map_remove": lambda state, key: [{"del": key}] if key in state else [],
    "incr": lambda state, by: [{"incr": by}],
}


def apply(state: Any, update: dict[str, Any]) -> Any:
    [(kind, value)] = update.items()
    return APPLIES[kind](state, value)


def increment(state: int) -> list[Any]:
    return [{"incr": 1}]
