"""DRPC: verbs over argument tuples, on what is committed at the time of the call."""

import pytest

from tidegauge.pipelines.declare.drpc import Arguments, execute
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.jobs.word_count import WORDS, word_count
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Count, StateSpec

pytestmark = pytest.mark.spark

TOTAL = StateSpec("total", measures={"n": Count()})


def split(words):
    """Split of Trident's word count."""
    for word in words.split(" "):
        yield (word,)


def counts():
    words = Stream.read(Arguments("words string")).each(split, ["words"], word="string")
    return words.state_query(WORDS, ["word"], count="bigint").where("count is not null")


def asked(*texts):
    return [{"words": text} for text in texts]


@pytest.fixture
def ask(workspace):
    return lambda stream, rows: execute(stream, rows, workspace.spark, workspace.dsn)


@pytest.mark.core
def test_trident_s_query_sums_the_counts_of_some_words_at_the_committed_batch(workspace, ask):
    summed = counts().aggregate(sum="sum(count)")
    workspace.land("1.txt", "the cat and the dog", "the man jumped")
    workspace.run(word_count(workspace.input))

    assert ask(summed, asked("cat dog the man unicorn")) == [{"sum": 6}]
    assert ask(summed, asked("unicorn")) == ask(summed, []) == [{"sum": None}]

    workspace.land("2.txt", "dog cat cat")
    workspace.run(word_count(workspace.input))
    assert ask(summed, asked("cat", "dog cat")) == [{"sum": 8}]

    # A batch that is open, and a row that it has written.
    workspace.conn.execute("UPDATE tidegauge.pipeline SET open_txid = committed_txid + 1")
    workspace.conn.execute(
        "UPDATE tidegauge_state.words SET prev_count = count, prev_txid = txid, prev_removed = false, "
        "prev_updated_at = updated_at, count = 1000, txid = 3 WHERE word = 'dog'"
    )
    assert ask(counts(), asked("dog")) == [{"words": "dog", "word": "dog", "count": 2}]


def test_arguments_may_be_split_and_merged_and_an_expired_count_is_absent(workspace, ask):
    workspace.land("1.txt", "cat dog dog")
    workspace.run(word_count(workspace.input))
    workspace.conn.execute("UPDATE tidegauge_state.words SET updated_at = now() - interval '2 days' WHERE word = 'cat'")
    workspace.conn.execute("UPDATE tidegauge.state SET ttl = '1 day' WHERE name = 'words'")
    words = Stream.read(Arguments("word string NOT NULL, weight int"))
    heavy, light = words.where("weight > 5"), words.where("weight <= 5")
    found = heavy.merge(light).state_query(WORDS, ["word"], count="bigint").project("word", "weight", "count")

    answer = ask(found, [{"word": "dog", "weight": 9}, {"word": "cat", "weight": 1}, {"word": "eel"}])

    assert sorted(answer, key=lambda row: row["word"]) == [
        {"word": "cat", "weight": 1, "count": None},
        {"word": "dog", "weight": 9, "count": 2},
    ]


class TestRefused:
    @pytest.mark.parametrize(
        ("stream", "message"),
        [
            (counts().persistent_aggregate(TOTAL), "starts at the fed state 'total'; start it at one"),
            (counts().persistent_aggregate(TOTAL).new_values_stream(), "starts at the fed state 'total'; start"),
            (Stream.read(TextFiles("nowhere")), "the stream starts at TextFiles; start it at one Arguments"),
            (counts().merge(counts()), "the stream starts at Arguments, Arguments"),
            (counts().with_watermark("at", "1 hour"), "the stream has a watermark"),
        ],
    )
    def test_a_stream_that_is_not_a_request(self, spark, stream, message):
        with pytest.raises(PipelineError, match=message):
            execute(stream, asked("dog"), spark, "")

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"word": "dog"}, "row 0: no column 'word'; there are words, n"),
            ({"words": "dog", "n": "seven"}, "execute: .*n"),
            ({"n": 7}, "execute: .*words"),
        ],
    )
    def test_arguments_that_do_not_fit_the_schema(self, ask, row, message):
        needed = Stream.read(Arguments("words string NOT NULL, n bigint"))
        with pytest.raises(PipelineError, match=message):
            ask(needed, [row])

    def test_an_unknown_column_and_a_state_that_no_pipeline_feeds(self, ask):
        with pytest.raises(PipelineError, match=r"execute: .*`total` cannot be resolved"):
            ask(counts().where("total > 1"), asked("dog"))
        with pytest.raises(PipelineError, match=r"execute: .*state 'words' is not registered"):
            ask(counts(), asked("dog"))

    def test_arguments_as_a_pipeline_s_source(self, workspace):
        with pytest.raises(PipelineError, match=r"Arguments cannot feed a pipeline; pass their stream to execute\(\)"):
            workspace.run(Pipeline("p", [counts().persistent_aggregate(TOTAL)]))
