"""Search index: an inverted index that follows its documents and writes only the postings that a change affects."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from tidegauge.pipelines.declare.functions import BatchState, Collector
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.operators.counts import RunningTotal
from tidegauge.pipelines.operators.keyed import fold_by_key
from tidegauge.pipelines.sources.files.formats import JsonFiles
from tidegauge.state_backends import StateSpec, Sum

DOCUMENT = "doc string NOT NULL, text string, deleted boolean, changed_at timestamp NOT NULL"

DOCUMENTS = StateSpec("documents", key={"doc": "text"}, value="jsonb")
# The word comes first, so that its posting list is one range of keys.
POSTINGS = StateSpec(
    "postings", key={"word": "text", "doc": "text"}, measures={"frequency": Sum("change", type="bigint")}
)

WORD = re.compile(r"\w+")


def word_counts(text: str | None) -> dict[str, int]:
    """Return how often each word occurs, in lower case."""
    return dict(Counter(WORD.findall((text or "").lower())))


class DocumentWords:
    """Keeps the words of each `doc` and the time of that text, `{"changed_at": .., "words": {word: times}}`.

    Takes the columns doc, text and changed_at, the rows of a document in order of time; a null text deletes it. Emits
    word, doc and change: the difference in that word's count. A deleted document keeps its time, so that an older text
    that arrives late does not restore it.
    """

    def update_state(self, state: BatchState, tuples: Sequence[Mapping[str, Any]], collector: Collector) -> None:
        fold_by_key(state, tuples, ("doc",), partial(self._newest, collector))

    def _newest(self, collector: Collector, stored: Any, rows: Sequence[Mapping[str, Any]]) -> Any:
        newest = rows[-1]
        if stored is not None and newest["changed_at"] < datetime.fromisoformat(stored["changed_at"]):
            return stored
        words = word_counts(newest["text"])
        for word, change in _changes(stored["words"] if stored else {}, words):
            collector.emit(word, newest["doc"], change)
        return {"changed_at": newest["changed_at"].isoformat(), "words": words}


def _changes(before: Mapping[str, int], now: Mapping[str, int]) -> list[tuple[str, int]]:
    changes = {word: now.get(word, 0) - before.get(word, 0) for word in [*before, *now]}
    return [(word, change) for word, change in changes.items() if change]


def search_index(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """Which documents have a word, and how often, from JSON lines of new, changed and deleted documents in a folder.

    The posting list of a word is a prefix scan: `PostgresBackingMap(conn, POSTINGS).scan(prefix=("dog",))`, or
    `SELECT doc, frequency FROM tidegauge_live.postings WHERE word = 'dog' ORDER BY frequency DESC`. A changed
    document writes only the postings of words whose count changed; a deleted one removes its postings.
    docs/search_index.md compares this with PostgreSQL's own text search.
    """
    documents = Stream.read(JsonFiles(folder, schema=DOCUMENT, files_per_batch=files_per_batch))
    texts = documents.each(text="if(deleted, null, text)").project("doc", "text", "changed_at")
    words = texts.partition_persist(
        DOCUMENTS,
        DocumentWords(),
        # The text breaks ties, so that of two changes with the same time, the same one comes last in every attempt.
        order_by=["changed_at", "text"],
        emits={"word": "string", "doc": "string", "change": "bigint"},
    )
    add_up = RunningTotal(key=("word", "doc"), total="frequency", change="change")
    return Pipeline("search_index", [words.new_values_stream().partition_persist(POSTINGS, add_up)])
