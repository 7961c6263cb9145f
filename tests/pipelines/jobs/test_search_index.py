import re
from collections import Counter
from pathlib import Path

import pytest

from tidegauge.pipelines.jobs.search_index import POSTINGS, search_index
from tidegauge.state_backends import PostgresBackingMap
from tidegauge.testing import Crash, Replay

pytestmark = pytest.mark.spark


def document(doc, minute, text=None, *, deleted=False):
    return {"doc": doc, "text": text, "deleted": deleted, "changed_at": f"2024-01-01T00:{minute:02}:00Z"}


BATCHES = [
    [document("d1", 1, "The dog bites the man"), document("d2", 1, "A cat; a Dog!"), document("d3", 1, "gone")],
    [
        document("d1", 3, "The man bites the dog, dog"),
        document("d1", 2, "never to be seen: older"),
        document("d2", 2, "A cat; a Dog!"),
        document("d3", 2, deleted=True),
        document("d4", 2, "short-lived"),
        document("d4", 3, deleted=True),
        document("d5", 2, "doghouse"),
    ],
    [document("d3", 1, "late and gone for good"), document("d2", 5, "no cat"), document("d5", 9, "dog house")],
]


def recount(lines):
    """How often each word is in the newest text of each document."""
    texts = {}
    for line in sorted(lines, key=lambda line: line["changed_at"]):
        texts[line["doc"]] = "" if line["deleted"] else line["text"]
    return {
        (word, doc): {"frequency": times}
        for doc, text in texts.items()
        for word, times in Counter(re.findall(r"\w+", text.lower())).items()
    }


def test_the_postings_are_those_of_the_newest_texts_also_after_a_crash_whose_replay_brings_others(tidegauge_run):
    replay = Replay([document("d1", 7, "dog")])

    first = tidegauge_run(search_index(Path("documents")), BATCHES, expected={"postings": recount})
    tidegauge_run(
        search_index(Path("documents")), [*BATCHES, Crash("mid_write"), replay], expected={"postings": recount}
    )

    assert ("gone", "d3") not in first["postings"]


def test_a_change_writes_the_postings_that_differ_and_a_posting_list_is_one_prefix(tidegauge_run):
    batches = [
        [document("d1", 1, "the dog bites the man"), document("d2", 1, "dog")],
        [document("d1", 2, "the dog bites a man"), document("d3", 2, "doghouse")],
    ]

    conn = tidegauge_run(search_index(Path("documents")), batches).conn

    written = conn.execute("SELECT word, doc FROM tidegauge_state.postings WHERE txid = 2 ORDER BY word").fetchall()
    assert written == [("a", "d1"), ("doghouse", "d3"), ("the", "d1")]
    dogs = PostgresBackingMap(conn, POSTINGS).scan(prefix=("dog",))
    assert [(key, row.value) for key, row in dogs] == [
        (("dog", "d1"), {"frequency": 1}),
        (("dog", "d2"), {"frequency": 1}),
    ]
