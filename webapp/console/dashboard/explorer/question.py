"""The question of the explorer: what its address asks about the keys of one state.

Invalid parts of an address are ignored, except for those that the reader refuses; the page then shows the reason.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlencode

from django.http import QueryDict

from tidegauge.state_backends import StateSpec
from tidegauge.state_backends.reader.bounds import orderable
from tidegauge.state_backends.reader.filters import Filter
from tidegauge.webapp.console.dashboard.entries import time_columns
from tidegauge.webapp.console.dashboard.ordered_query import OrderedQuery, as_list, clean, some_of
from tidegauge.webapp.console.dashboard.pasted import whole_number

ROWS = (25, 100, 1_000)
MOST_CONDITIONS = 10


@dataclass(frozen=True)
class Question(OrderedQuery):
    """prefix: leading key parts, as typed. where: conditions, as typed. group: key columns to fold by; empty for none.

    measures: those shown; empty for all. limit: rows of a page, one of ROWS. as_of: a batch or a time, as typed; empty
    for the latest batch. than: the batch or time to compare with, as typed; empty for none. last: the length of event
    time up to the newest one, as typed; empty for all. movers: order by the difference to then. split: the key column
    that has a line for each value in charts. n: number of entries on earlier pages. view: the id of the saved view that
    was opened; empty for none.
    """

    prefix: str = ""
    where: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    order: str = ""
    limit: int = ROWS[0]
    as_of: str = ""
    than: str = ""
    last: str = ""
    movers: bool = False
    split: str = ""
    after: str = ""
    n: int = 0
    view: str = ""
    newest: str = ""

    @classmethod
    def parse(cls, asked: QueryDict, spec: StateSpec) -> Self:
        after = asked.get("after", "") if as_list(asked.get("after", "")) is not None else ""
        order, limit = asked.get("order", ""), whole_number(asked.get("limit", ""))
        group = tuple(column for column in spec.key if column in asked.getlist("group") and spec.measures)
        times_of_all = time_columns(spec)
        times = [name for name in times_of_all if name in (group or spec.key)]
        return cls(
            prefix=clean(asked.get("prefix", "")),
            where=tuple(filter(None, map(clean, asked.getlist("where"))))[:MOST_CONDITIONS],
            group=group,
            measures=some_of(list(spec.measures), asked.getlist("measures")),
            order=order if order.removeprefix("-") in [*orderable(spec), *times] else "",
            limit=limit if limit in ROWS else ROWS[0],
            as_of=clean(asked.get("as_of", "")),
            than=clean(asked.get("than", "")) if spec.measures else "",
            last=clean(asked.get("last", "")) if times_of_all else "",
            movers=bool(asked.get("movers") and asked.get("than")),
            split=asked.get("split", "") if asked.get("split") in spec.key and times_of_all else "",
            after=after,
            n=whole_number(asked.get("n", "")) or 0 if after else 0,
            view=clean(asked.get("view", "")),
            newest=next(iter(times), ""),
        )

    @property
    def is_search(self) -> bool:
        """Whether more is read than is shown, so that the limit of concurrent searches applies, as in the API."""
        return bool(self.where or self.order or self.group or self.than or self.last)

    @property
    def conditions(self) -> list[Filter]:
        """Raises FilterError for an invalid condition."""
        return [Filter.parse(text) for text in self.where]

    def shown_measures(self, spec: StateSpec) -> list[str]:
        """Return the measures of the table's columns; the one that the table is sorted by is always included."""
        chosen = list(self.measures) or list(spec.measures) or ["value"]
        return chosen if self.order_by in (None, *chosen, *spec.key) else [*chosen, self.order_by or ""]

    @property
    def parameters(self) -> dict[str, Any]:
        """The query parameters that ask this question."""
        names = ("prefix", "where", "group", "order", "limit", "as_of", "than", "last", "split", "after", "n", "view")
        parts = {name: getattr(self, name) for name in names} | {"movers": int(self.movers)}
        parts["measures"] = ",".join(self.measures)
        return {name: part for name, part in parts.items() if part and part != getattr(Question, name)}

    def address(self, **changes: Any) -> str:
        """Return the query string of this question with some parts changed."""
        return f"?{urlencode(replace(self, **changes).parameters, doseq=True)}"

    def within(self, key: Sequence[Any]) -> str:
        """Return the address of the entries that are folded into a group."""
        parts = (f"{name} = {json.dumps(_as_text(part))}" for name, part in zip(self.group, key, strict=True))
        return self.address(where=(*self.where, *parts), group=())

    @property
    def now(self) -> str:
        return self.address(as_of="", after="", n=0)


def _as_text(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part)
