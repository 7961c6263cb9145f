"""TopN: the N largest of a running count, kept up to date from the counts that change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.functions import BatchState, Collector
from pipelines.updaters.by_key import fold_by_key


@dataclass(frozen=True)
class TopN:
    """Keeps per key a list of the n items with the largest counts: `[{item: .., count: ..}, ..]`, largest first.

    key: the key columns of the state, which holds JSON values. item, count: the columns that a tuple brings them in.
    Items of one count come in the order of their names. The list is what sorting everything would give as long as no
    count ever falls: an item outside can then only come in by a count that changes, and each change comes by here.
    """

    key: tuple[str, ...]
    item: str
    count: str
    n: int

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, self.key, self._top)

    def _top(self, held: list[dict[str, Any]] | None, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        counts = {row[self.item]: row[self.count] for row in [*(held or []), *rows]}
        ranked = sorted(counts.items(), key=lambda found: (-found[1], found[0]))
        return [{self.item: item, self.count: count} for item, count in ranked[: self.n]]
