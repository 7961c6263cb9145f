"""RunningTotal: adds up changes, and removes what has come to nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.functions import BatchState, Collector
from pipelines.updaters.by_key import fold_by_key


@dataclass(frozen=True)
class RunningTotal:
    """Adds the column `change` to the measure `total`, a Sum; at 0 the key goes, where an aggregate would keep a row.

    key: the key columns of the state.
    """

    key: tuple[str, ...]
    total: str
    change: str

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, self.key, self._added)

    def _added(self, held: Mapping[str, int] | None, rows: Sequence[Mapping[str, Any]]) -> Any:
        total = (held[self.total] if held else 0) + sum(row[self.change] for row in rows)
        return {self.total: total} if total else None
