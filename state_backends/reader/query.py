"""RangeQuery: which entries of a state a page, a grouping or an export reads, and as of which batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.state_backends.reader.bounds import KeyRange, check_range
from tidegauge.state_backends.reader.filters import Filter, Where, check_where, narrowed
from tidegauge.state_backends.spec.row import Key
from tidegauge.state_backends.spec.state_spec import StateSpec


@dataclass(frozen=True, kw_only=True)
class RangeQuery:
    """The arguments of `Reader.page`, `groups` and `export`, which describe them. Readers check them.

    most_read: the most keys that may be read to sort or to fold; 0: no limit.
    """

    prefix: Key = ()
    start: Key | None = None
    stop: Key | None = None
    search: str = ""
    where: Where = ()
    measures: Sequence[str] | None = None
    order_by: str | None = None
    descending: bool = False
    after: Sequence[Any] | None = None
    limit: int = 50
    most_read: int = 0
    at_txid: int | None = None

    def bounds(self, spec: StateSpec) -> tuple[KeyRange, list[Filter]]:
        """Return the range, narrowed by the conditions, and the conditions. Raises KeyShapeError and FilterError."""
        conditions = check_where(spec, self.where)
        asked = check_range(spec, self.prefix, self.start, self.stop, self.search)
        return narrowed(spec, asked, conditions), conditions
