"""Groups: entries of a state folded by key columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tidegauge.client.calls import Call, Steps
from tidegauge.client.entries import Range, read_of_state
from tidegauge.client.lookups import names
from tidegauge.client.values import AS_IN_JSON, Key, Types, timestamp


@dataclass(frozen=True)
class Group:
    """Entries folded into one. key: the parts that their keys have in common. keys: the number of entries."""

    key: Key
    keys: int
    value: Any


@dataclass(frozen=True)
class Groups:
    """Groups by the key columns `by`, all at batch `txid` of `epoch`, whose time is `batch_time`.

    complete: False if there are more groups than were asked for.
    """

    by: Sequence[str]
    groups: Sequence[Group]
    complete: bool
    epoch: str
    txid: int
    batch_time: datetime | None
    isolation: str
    types: Types = field(default=AS_IN_JSON, repr=False, compare=False)

    def __iter__(self) -> Iterator[Group]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def table(self) -> list[dict[str, Any]]:
        """Return a dict by column per group, for `pandas.DataFrame`, or for `Table.from_pylist` of Arrow."""
        return [self.types.row(group.key, group.value) for group in self.groups]


def groups(
    call: Call, state: str, by: Sequence[str], wanted: Range, order_by: str | None, limit: int | None
) -> Steps[Groups]:
    asked = wanted.parameters() | {"by": ",".join(names(by) or ())}
    asked |= {} if order_by is None else {"order_by": order_by}
    asked |= {} if limit is None else {"limit": str(limit)}
    document, types = yield from read_of_state(call, state, "groups", asked)
    return _groups_of(document, types.of_columns(document["by"]))


def _groups_of(document: Mapping[str, Any], types: Types) -> Groups:
    groups = [Group(types.key(row["key"]), row["keys"], types.value(row["value"])) for row in document["groups"]]
    return Groups(
        document["by"], groups, document["complete"], document["epoch"], document["txid"],
        timestamp(document["batch_time"]), document["isolation"], types,
    )  # fmt: skip
