"""Source input: what each source gave to a batch, by which a batch that comes again is compared with the one before.

A batch's number says nothing of its contents: a checkpoint that went back plans the same number with other input. The
ledger stores a fingerprint of the input with each batch, and of every source what it reads, as its topic's id.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

# Items of one source that a batch's record keeps, so that an error can name some; the digest covers all of them.
RECORDED_ITEMS = 100
NAMED_ITEMS = 3  # of each kind of difference, in an error

# What a source reads, by name, to what tells whether it was replaced: {"orders": "<topic id>"}.
Identity = Mapping[str, str]


@dataclass(frozen=True)
class SourceInput:
    """What one source gives to a batch.

    unit: what an item is, in the plural, as `files`. items: by name, any JSON value that differs if something else is
    read under that name: of a file its time of modification in ms, of a partition its offsets [from, to].
    listed: whether an item is read once for all time, as a file is; the ledger then keeps the names of all items.
    """

    unit: str
    items: Mapping[str, Any]
    listed: bool = False

    def fingerprint(self) -> dict[str, Any]:
        """Return what the ledger stores: unit, count, a digest of all items, and the first of them by name."""
        recorded = dict(sorted(self.items.items())[:RECORDED_ITEMS])
        return {"unit": self.unit, "count": len(self.items), "digest": _digest(self.items), "items": recorded}


def fingerprints(held: Sequence[SourceInput | None]) -> list[dict[str, Any] | None]:
    """Return the fingerprint of each source's input, None where it is unknown."""
    return [None if part is None else part.fingerprint() for part in held]


def difference(stored: Sequence[Any] | None, held: Sequence[SourceInput | None] | None) -> str | None:
    """Return in words how the input differs from stored fingerprints: empty if it does not, None if that is unknown."""
    pairs = list(zip_longest(stored or [], held or []))
    known = [(before, now) for before, now in pairs if before is not None and now is not None]
    changes = [_differences(before, now) for before, now in known if _differs(before, now)]
    return "; ".join(changes) if changes or (known and len(known) == len(pairs)) else None


def replaced(bound: Sequence[Identity], found: Sequence[Identity]) -> list[tuple[str, str, str]]:
    """Return (name, id before, id now) of everything that a source reads under the same name with another id."""
    return [
        (name, before[name], now[name])
        for before, now in zip(bound, found, strict=False)
        for name in before
        if name in now and before[name] != now[name]
    ]


def merged(bound: Sequence[Identity], found: Sequence[Identity]) -> list[dict[str, str]]:
    """Return the identities with those that were found since; a name that is no longer read keeps its id."""
    none: Identity = {}
    return [{**before, **now} for before, now in zip_longest(bound, found, fillvalue=none)]


def _differs(before: Mapping[str, Any], now: SourceInput) -> bool:
    return bool(before["digest"] != _digest(now.items))


def _differences(before: Mapping[str, Any], now: SourceInput) -> str:
    listed, found = before["items"], now.items
    whole = before["count"] == len(listed)
    kinds = {
        "missing": [name for name in listed if name not in found],
        "changed": [name for name in listed if name in found and found[name] != listed[name]],
        "additional": [name for name in sorted(found) if name not in listed] if whole else [],
    }
    words = [f"{kind}: {_named(names)}" for kind, names in kinds.items() if names]
    return f"{before['count']} {now.unit} then, {len(found)} now" + "".join(f", {each}" for each in words)


def _named(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:NAMED_ITEMS])) + (
        f" and {len(names) - NAMED_ITEMS} more" if len(names) > NAMED_ITEMS else ""
    )


def _digest(items: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for line in _lines(items):
        digest.update(line)
    return digest.hexdigest()


def _lines(items: Mapping[str, Any]) -> Iterator[bytes]:
    for item in sorted(items.items()):
        yield json.dumps(item, sort_keys=True).encode() + b"\n"
