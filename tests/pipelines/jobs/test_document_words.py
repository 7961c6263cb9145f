"""DocumentWords and RunningTotal as the search index combines them, over any run of batches."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines.operators.updater_harness import state_map
from tidegauge.pipelines.jobs.search_index import DocumentWords
from tidegauge.pipelines.operators.counts import RunningTotal
from tidegauge.state_backends import StateSpec, Sum

DOCUMENTS = StateSpec("documents", key={"doc": "text"}, value="jsonb")
POSTINGS = StateSpec(
    "postings", key={"word": "text", "doc": "text"}, measures={"frequency": Sum("change", type="bigint")}
)
START = datetime(2024, 1, 1, tzinfo=UTC)
TEXTS = st.none() | st.lists(st.sampled_from(["dog", "Dog", "cat,", "é", ""]), max_size=4).map(" ".join)
# No time comes twice: it must be clear which of two texts is newer.
CHANGES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 500), TEXTS), max_size=25, unique_by=lambda c: c[1])


class Emitted(list):
    def emit(self, *values):
        self.append(values)


def tuples_of(changes):
    """A batch as an updater gets it: a document's changes together, in order of time."""
    return [
        {"doc": doc, "changed_at": START + timedelta(seconds=second), "text": text} for doc, second, text in changes
    ]


def in_calls(updater, state, tuples, size, collector=None):
    for first in range(0, len(tuples), size):
        updater.update_state(state, tuples[first : first + size], collector)


def recount(changes):
    newest = {doc: text for doc, _, text in sorted(changes, key=lambda change: change[1])}
    return {
        (word, doc): {"frequency": times}
        for doc, text in newest.items()
        for word, times in Counter(re.findall(r"\w+", (text or "").lower())).items()
    }


@given(CHANGES, st.integers(1, 9), st.integers(1, 4), st.randoms())
def test_the_postings_are_those_of_the_newest_texts_for_any_cut_into_batches_and_calls(changes, batch, size, chance):
    documents, postings = state_map(DOCUMENTS), state_map(POSTINGS)

    for txid, first in enumerate(range(0, len(changes), batch), 1):
        emitted = Emitted()
        documents.begin_commit(txid)
        in_calls(DocumentWords(), documents, tuples_of(sorted(changes[first : first + batch])), size, emitted)
        documents.commit(txid)
        # The new values stream has no order.
        chance.shuffle(emitted)
        postings.begin_commit(txid)
        rows = [dict(zip(("word", "doc", "change"), values, strict=True)) for values in emitted]
        in_calls(RunningTotal(("word", "doc"), "frequency", "change"), postings, rows, size)
        postings.commit(txid)

    words = {word for word, _ in recount(changes)} | {"dog", "cat", "é"}
    keys = [(word, doc) for word in words for doc in "ab"]
    stored = {key: value for key, value in zip(keys, postings.multi_get(keys), strict=True) if value is not None}
    assert stored == recount(changes)


def test_a_change_emits_only_the_words_whose_count_changed():
    documents, emitted = state_map(DOCUMENTS), Emitted()
    for minute, text in enumerate(["the dog bites the man", "the dog bites a man"]):
        emitted.clear()
        DocumentWords().update_state(documents, tuples_of([("d", minute, text)]), emitted)

    assert sorted(emitted) == [("a", "d", 1), ("the", "d", -1)]
