"""Writes changes for people and programs, without secrets: of a webhook's URL only the host."""

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from tidegauge.webapp.configuration.kinds import KINDS
from tidegauge.webapp.configuration.plan import Change

MARKS = {"create": "+", "change": "~", "remove": "-"}
PAST = {"create": "created", "change": "changed", "remove": "removed"}


def as_lines(changes: Iterable[Change]) -> Iterator[str]:
    """Yield a line for each object and each field that differs, as `diff` and `apply` print them."""
    for change in changes:
        yield f"{MARKS[change.act]} {KINDS[change.kind].noun} {change.name}"
        for field, (before, after) in _shown(change):
            value = _text(before if change.act == "remove" else after)
            yield f"    {field}: {_text(before)} -> {value}" if change.act == "change" else f"    {field}: {value}"


def as_documents(changes: Iterable[Change]) -> list[dict[str, Any]]:
    return [
        {
            "act": change.act,
            "kind": change.kind,
            "name": change.name,
            "fields": {field: {"before": before, "after": after} for field, (before, after) in _shown(change)},
        }
        for change in changes
    ]


def summary(changes: list[Change]) -> str:
    """Return how many objects were created, changed and removed."""
    counts = {act: sum(change.act == act for change in changes) for act in MARKS}
    return ", ".join(f"{count} {PAST[act]}" for act, count in counts.items() if count) or "nothing to change"


def _shown(change: Change) -> list[tuple[str, tuple[Any, Any]]]:
    fields = KINDS[change.kind].fields
    return [(name, tuple(map(fields[name].shown, pair))) for name, pair in change.differing.items()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
