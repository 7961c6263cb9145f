"""Search index: an inverted index that follows its documents, written only where a change makes a difference."""

from pathlib import Path

from pipelines.pipeline import Pipeline
from pipelines.sources.files import JsonFiles
from pipelines.stream import Stream
from pipelines.updaters.document_words import DocumentWords
from pipelines.updaters.running_total import RunningTotal
from state_backends import StateSpec, Sum

DOCUMENT = "doc string NOT NULL, text string, deleted boolean, changed_at timestamp NOT NULL"

DOCUMENTS = StateSpec("documents", key={"doc": "text"}, value="jsonb")
# The word comes first, so that its posting list lies together.
POSTINGS = StateSpec(
    "postings", key={"word": "text", "doc": "text"}, measures={"frequency": Sum("change", type="bigint")}
)


def search_index(folder: Path, files_per_batch: int = 100) -> Pipeline:
    """Which documents hold a word, and how often, from JSON lines of new, changed and deleted documents in a folder.

    The posting list of a word is a prefix scan: `PostgresBackingMap(conn, POSTINGS).scan(prefix=("dog",))`, or
    `SELECT doc, frequency FROM tidemark_live.postings WHERE word = 'dog' ORDER BY frequency DESC`. Of a changed
    document the postings of words that it gained, lost or has more or less often are written, and no others; those of
    a deleted one go. docs/search_index.md has what PostgreSQL's own text search does instead.
    """
    documents = Stream.read(JsonFiles(folder, schema=DOCUMENT, files_per_batch=files_per_batch))
    texts = documents.each(text="if(deleted, null, text)").project("doc", "text", "changed_at")
    words = texts.partition_persist(
        DOCUMENTS,
        DocumentWords(),
        # Of two changes at one time the same one comes last in every attempt.
        order_by=["changed_at", "text"],
        emits={"word": "string", "doc": "string", "change": "bigint"},
    )
    add_up = RunningTotal(key=("word", "doc"), total="frequency", change="change")
    return Pipeline("search_index", [words.new_values_stream().partition_persist(POSTINGS, add_up)])
