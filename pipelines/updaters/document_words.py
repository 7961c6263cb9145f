"""DocumentWords: which words a changed document gains and loses, so that an index is written where it differs only."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from pipelines.functions import BatchState, Collector
from pipelines.updaters.by_key import fold_by_key

WORD = re.compile(r"\w+")


def word_counts(text: str | None) -> dict[str, int]:
    """Return how often each word occurs, in lower case."""
    return dict(Counter(WORD.findall((text or "").lower())))


class DocumentWords:
    """Keeps per `doc` its words and the time they are from, `{"changed_at": .., "words": {word: times}}`.

    Takes the columns doc, text and changed_at, a document's in order of time; without a text it is deleted. Emits word,
    doc and change: how many more of that word there are now, below 0 for fewer. A deleted document keeps its time, so
    that an older text which comes late cannot bring it back.
    """

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, ("doc",), partial(self._newest, collector))

    def _newest(self, collector: Collector, held: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
        newest = rows[-1]
        if held is not None and newest["changed_at"] < datetime.fromisoformat(held["changed_at"]):
            return held
        words = word_counts(newest["text"])
        for word, change in _changes(held["words"] if held else {}, words):
            collector.emit(word, newest["doc"], change)
        return {"changed_at": newest["changed_at"].isoformat(), "words": words}


def _changes(before: Mapping[str, int], now: Mapping[str, int]) -> list[tuple[str, int]]:
    changes = {word: now.get(word, 0) - before.get(word, 0) for word in [*before, *now]}
    return [(word, change) for word, change in changes.items() if change]
