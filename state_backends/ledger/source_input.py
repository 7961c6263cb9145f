"""Source input: what each source gave to a batch, so that a batch that comes again can be compared with the first one.

The number of a batch does not identify its contents, because an older checkpoint plans the same number with other
input. So the ledger stores a fingerprint of the input with each batch, and per source an id of what it reads, such as
the id of a Kafka topic.
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

# Name of what a source reads to an id that changes if it is replaced: {"orders": "<topic id>"}.
Identity = Mapping[str, str]


@dataclass(frozen=True)
class SourceInput:
    """What one source gives to a batch.

    unit: what an item is, in the plural, such as `files`. items: name to a JSON value that differs if something else is
    read under that name: a file's time of modification in ms, a partition's offsets [from, to].
    listed: whether each item is read only once ever, like a file; the ledger then keeps the names of all items.
    """

    unit: str
    items: Mapping[str, Any]
    listed: bool = False

    def fingerprint(self) -> dict[str, Any]:
        """Return what the ledger stores: unit, count, a digest of all items, and the first of them by name."""
        recorded = dict(sorted(self.items.items())[:RECORDED_ITEMS])
        return {"unit": self.unit, "count": len(self.items), "digest": _digest(self.items), "items": recorded}


def fingerprints(held: Sequence[SourceInput | None]) -> list[dict[str, Any] | None]:
    """Return the fingerprint of each source's input, None if it is unknown."""
    return [None if part is None else part.fingerprint() for part in held]


def difference(stored: Sequence[Any] | None, held: Sequence[SourceInput | None] | None) -> str | None:
    """Return as text how the input differs from stored fingerprints: empty if it does not, None if that is unknown."""
    pairs = list(zip_longest(stored or [], held or []))
    known = [(before, now) for before, now in pairs if before is not None and now is not None]
    changes = [_differences(before, now) for before, now in known if _differs(before, now)]
    return "; ".join(changes) if changes or (known and len(known) == len(pairs)) else None


def replaced(bound: Sequence[Identity], found: Sequence[Identity]) -> list[tuple[str, str, str]]:
    """Return (name, id before, id now) of everything that has another id now under the same name."""
    return [
        (name, before[name], now[name])
        for before, now in zip(bound, found, strict=False)
        for name in before
        if name in now and before[name] != now[name]
    ]


def merged(bound: Sequence[Identity], found: Sequence[Identity]) -> list[dict[str, str]]:
    """Return the known identities updated by those found now; a name that is no longer read keeps its id."""
    none: Identity = {}
    return [{**before, **now} for before, now in zip_longest(bound, found, fillvalue=none)]


def _differs(before: Mapping[str, Any], now: SourceInput) -> bool:
    return bool(before["digest"] != _digest(now.items))


def _differences(before: Mapping[str, Any], now: SourceInput) -> str:
    listed, found = before["items"], now.items
    # A record lists only the first items. If it is cut, an item that it lacks may have been read before.
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
