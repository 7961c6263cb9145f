"""The answer of a lookup: one result per key, or one value that combines many keys."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from tidegauge.client.values import AS_IN_JSON, Key, Types, timestamp


@dataclass(frozen=True)
class Result:
    """The result for one key. value: a dict by measure, or a JSON value if the state has one; None unless found."""

    key: Key
    status: Literal["found", "missing", "expired", "removed"]
    value: Any


@dataclass(frozen=True)
class Combined:
    """The values of many keys folded into one. keys: how many were found."""

    keys: int
    missing: int
    expired: int
    value: Any


@dataclass(frozen=True)
class Answer:
    """Results of one state, one per key, in the order asked, all at batch `txid` of `epoch` at `batch_time`.

    isolation: `uncommitted` if rows of an open batch may be among them. combined: set instead of the results. fed:
    False if the state or one of its measures is no longer fed.
    """

    state: str
    epoch: str
    txid: int
    batch_time: datetime | None
    isolation: str
    results: Sequence[Result] = ()
    combined: Combined | None = None
    fed: bool = True
    types: Types = field(default=AS_IN_JSON, repr=False, compare=False)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def found(self) -> dict[Key, Any]:
        """The values of the keys that were found, by key."""
        return {result.key: result.value for result in self.results if result.status == "found"}

    def table(self) -> list[dict[str, Any]]:
        """Return one dict by column per key found, for `pandas.DataFrame`, or for `Table.from_pylist` of Arrow.

        For a combined value it returns one dict without key columns.
        """
        if self.combined is not None:
            return [self.types.row(None, self.combined.value)]
        return [self.types.row(key, value) for key, value in self.found.items()]


def answer_of(document: Mapping[str, Any], types: Types) -> Answer:
    results = [result_of(row, types) for row in document.get("results", ())]
    folded = document.get("combined")
    combined = None
    if folded is not None:
        combined = Combined(folded["keys"], folded["missing"], folded["expired"], types.value(folded["value"]))
    return Answer(
        document["state"], document["epoch"], document["txid"], timestamp(document["batch_time"]),
        document["isolation"], results, combined, document.get("fed", True), types,
    )  # fmt: skip


def result_of(row: Mapping[str, Any], types: Types) -> Result:
    return Result(types.key(row["key"]), row["status"], types.value(row["value"]))
