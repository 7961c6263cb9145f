import json
import re
from collections import Counter
from itertools import chain

import pytest

from pipelines.jobs.search_index import POSTINGS, search_index
from state_backends import PostgresBackingMap
from tests.pipelines.jobs.job_input import opaque, refusing

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


def recount(*batches):
    """How often each word is in the newest text of each document."""
    texts = {}
    for line in sorted(chain(*batches), key=lambda line: line["changed_at"]):
        texts[line["doc"]] = "" if line["deleted"] else line["text"]
    return {
        (word, doc): times
        for doc, text in texts.items()
        for word, times in Counter(re.findall(r"\w+", text.lower())).items()
    }


def postings(workspace):
    return {key: value["frequency"] for key, value in workspace.values("postings").items()}


def test_the_postings_are_those_of_the_newest_texts_also_after_a_crash_whose_replay_brings_others(workspace):
    def run():
        return workspace.run(opaque(search_index(workspace.input, files_per_batch=1)))

    files = [workspace.land(f"{place}.json", *batch) for place, batch in enumerate(BATCHES)]

    assert run() == [(1, 1), (2, 1), (3, 1)]
    assert postings(workspace) == recount(*BATCHES)
    assert ("gone", "d3") not in postings(workspace)

    workspace.forget_last_commit()
    with refusing(workspace.conn, "postings"), pytest.raises(Exception, match="failed by the test"):
        run()
    files[2].write_text(json.dumps(document("d1", 7, "dog")) + "\n")

    assert run() == [(3, 3)]
    assert postings(workspace) == recount(*BATCHES[:2], [document("d1", 7, "dog")])


def test_a_change_writes_the_postings_that_differ_and_a_posting_list_is_one_prefix(workspace):
    workspace.land("1.json", document("d1", 1, "the dog bites the man"), document("d2", 1, "dog"))
    workspace.land("2.json", document("d1", 2, "the dog bites a man"), document("d3", 2, "doghouse"))

    workspace.run(search_index(workspace.input, files_per_batch=1))

    written = workspace.rows("SELECT word, doc FROM tidemark_state.postings WHERE txid = 2 ORDER BY word")
    assert written == [("a", "d1"), ("doghouse", "d3"), ("the", "d1")]
    dogs = PostgresBackingMap(workspace.conn, POSTINGS).scan(prefix=("dog",))
    assert [(key, row.value) for key, row in dogs] == [
        (("dog", "d1"), {"frequency": 1}),
        (("dog", "d2"), {"frequency": 1}),
    ]
