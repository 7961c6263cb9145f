"""RetractableMin and RetractableMax: extremes of values that can be retracted.

An extreme by itself does not say which value is next when it is retracted. So a multiset is stored beside it, the count
of each distinct value, and the extreme is computed from that. A row grows with the distinct values of its key, and a
batch that touches the key reads and writes all of them, in Python.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, LiteralString, NamedTuple

from tidegauge.state_backends.aggregators.basic import Extreme
from tidegauge.state_backends.aggregators.column import cast, greatest, least

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Form(NamedTuple):
    """How a value is read from text and written as text. Spark's text is read and written again, because sessions
    differ in how they write a value."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


FORMS = {
    "bigint": Form(int, str),
    "numeric": Form(Decimal, "{:f}".format),
    "double precision": Form(float, repr),
    "text": Form(str, str),
    "boolean": Form(lambda text: text == "true", lambda value: str(value).lower()),
    "timestamptz": Form(
        lambda text: EPOCH + timedelta(microseconds=int(text)),
        lambda value: str((value - EPOCH) // timedelta(microseconds=1)),
    ),
}


class _RetractableExtreme(Extreme):
    """Shared by both. Stored: the extreme, and `counts`, which maps each value, as text, to the number of its rows."""

    fold_sql: ClassVar[Mapping[str, LiteralString]] = {}

    def __init__(self, column: str, type: str | None = None) -> None:
        super().__init__(column, type)
        self._form = FORMS[self.columns[""]]
        self.columns["counts"] = "jsonb"
        self.fold_lua = {}

    def partial(self) -> dict[str, str]:
        return self.signed_partial("1")

    def signed_partial(self, sign: str) -> dict[str, str]:
        """Return Spark SQL for a JSON object of two lists: the values that are added and those that are retracted."""
        value = cast(self.column, self.result_type)
        text = f"cast({f'unix_micros({value})' if self.result_type == 'timestamptz' else value} as string)"
        added = f"collect_list({text}) filter (where {sign} >= 0)"
        taken = f"collect_list({text}) filter (where {sign} < 0)"
        return {"counts": f"to_json(struct({added} as added, {taken} as taken))"}

    def fold(self, stored: Mapping[str, Any], partial: Mapping[str, Any]) -> dict[str, Any]:
        counts = self._counts(stored)
        counts.update(self._counts(partial))
        kept = {value: number for value, number in counts.items() if number}
        return {"": type(self).pick(*map(self._form.read, kept)), "counts": kept}

    def _counts(self, side: Mapping[str, Any]) -> Counter[str]:
        """Return the multiset of a stored value, or of a batch as Spark returns it; either may be JSON text."""
        counts = side.get("counts") or {}
        found = json.loads(counts) if isinstance(counts, str) else counts
        # By its type, because `added` may also be one of the stored texts, with its count.
        if not isinstance(found.get("added"), list):
            return Counter(found)
        batch = Counter(map(self._text, found["added"]))
        batch.subtract(map(self._text, found["taken"]))
        return batch

    def _text(self, text: str) -> str:
        return self._form.write(self._form.read(text))


class RetractableMin(_RetractableExtreme):
    """The smallest value among the current rows of a group. Empty input gives null; nulls do not count.

    column, type: as for Min. Raises SpecError for another type.
    """

    name = "retractable_min"
    pick = staticmethod(least)


class RetractableMax(_RetractableExtreme):
    """The largest value among the current rows of a group. Empty input gives null; nulls do not count.

    column, type: as for Max. Raises SpecError for another type.
    """

    name = "retractable_max"
    pick = staticmethod(greatest)
