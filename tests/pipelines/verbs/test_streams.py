"""The verbs without a state of their own: project, each, merge, aggregate, windows; and several sources."""

import pytest

from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.declare.windows import sliding
from tidegauge.pipelines.errors import PipelineError
from tidegauge.pipelines.sources.files.formats import JsonFiles, TextFiles
from tidegauge.state_backends import Count, StateSpec, Sum

pytestmark = pytest.mark.spark

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()})


def split(line):
    """Split of Trident's word count; here it emits nothing for `-`."""
    for word in line.split(" "):
        if word != "-":
            yield (word,)


def words(workspace, state="words"):
    return {word: value["count"] for word, value in workspace.values(state).items()}


@pytest.mark.core
def test_a_function_emits_zero_or_more_tuples(workspace):
    lines = Stream.read(TextFiles(workspace.input))
    workspace.land("1.txt", "dog cat dog", "-", "cow")

    workspace.run(
        Pipeline("p", [lines.each(split, ["line"], word="string").group_by("word").persistent_aggregate(WORDS)])
    )

    assert words(workspace) == {"dog": 2, "cat": 1, "cow": 1}


def test_a_tuple_of_another_length_is_refused_with_the_declared_columns(workspace):
    lines = Stream.read(TextFiles(workspace.input))
    pair = lines.each(lambda line: [(line, 1)], ["line"], word="string")
    workspace.land("1.txt", "dog")

    with pytest.raises(Exception, match=r"emitted \('dog', 1\), but a tuple of 1 was declared: word"):
        workspace.run(Pipeline("p", [pair.group_by("word").persistent_aggregate(WORDS)]))


def test_a_type_that_spark_does_not_know_is_refused_at_the_start(workspace):
    lines = Stream.read(TextFiles(workspace.input)).each(split, ["line"], word="txet")

    with pytest.raises(PipelineError, match="column 'word': 'txet' is not a Spark type"):
        workspace.run(Pipeline("p", [lines.group_by("word").persistent_aggregate(WORDS)]))


def test_the_input_of_a_stream_without_tuples_is_counted(workspace, tmp_path):
    events = Stream.read(JsonFiles(workspace.input, schema="word string", max_bad_share=1.0)).where("1 = 0")
    workspace.land("1.json", {"word": "dog"}, "{bad")

    workspace.run(Pipeline("p", [events.group_by("word").persistent_aggregate(WORDS)]))

    assert workspace.rows("SELECT rows_in, dead_letters FROM tidegauge.batch") == [(2, 1)]


@pytest.mark.core
def test_streams_of_two_sources_commit_together(workspace, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "1.json").write_text('{"word": "dog", "n": 1}\n{"bad\n')
    workspace.land("1.txt", "dog", "cat")
    lines = Stream.read(TextFiles(workspace.input)).each(word="line").project("word")
    objects = Stream.read(JsonFiles(other, schema="word string, n int", max_bad_share=1.0))

    batches = workspace.run(Pipeline("p", [lines.merge(objects).group_by("word").persistent_aggregate(WORDS)]))

    assert words(workspace) == {"dog": 2, "cat": 1}
    assert workspace.rows("SELECT sum(rows_in), sum(dead_letters) FROM tidegauge.batch") == [(4, 1)]
    assert workspace.rows("SELECT source, part FROM tidegauge.dead_letter") == [("1.json", 1)]
    assert batches[0] == (1, 1)


def test_states_fed_at_once_are_exact_over_many_small_batches(workspace):
    """Small ones share a partition from the second batch on."""
    totals = StateSpec("totals", measures={"count": Count()})
    by_length = StateSpec("by_length", key={"length": "integer"}, measures={"count": Count()})
    lines = Stream.read(TextFiles(workspace.input, files_per_batch=1)).each(word="line", length="length(line)")
    for number in range(4):
        workspace.land(f"{number}.txt", "dog", "horse", f"cow{number}")

    workspace.run(
        Pipeline(
            "p",
            [
                lines.group_by("word").persistent_aggregate(WORDS),
                lines.persistent_aggregate(totals),
                lines.group_by("length").persistent_aggregate(by_length),
            ],
        )
    )

    assert words(workspace) == {"dog": 4, "horse": 4, "cow0": 1, "cow1": 1, "cow2": 1, "cow3": 1}
    assert workspace.values("totals") == {(): {"count": 12}}
    assert words(workspace, "by_length") == {3: 4, 4: 4, 5: 4}
    assert workspace.rows("SELECT sum(dead_letters) FROM tidegauge.batch") == [(0,)]


@pytest.mark.core
def test_aggregate_works_on_each_batch_on_its_own(workspace):
    largest = StateSpec("largest", measures={"sum": Sum("most", type="bigint")})
    lines = Stream.read(TextFiles(workspace.input, files_per_batch=1))
    most = lines.group_by("line").aggregate(n="count(1)").aggregate(most="max(n)")
    workspace.land("1.txt", "dog", "cat", "dog")
    workspace.land("2.txt", "dog", "dog", "dog")

    workspace.run(Pipeline("p", [most.persistent_aggregate(largest)]))

    assert workspace.values("largest") == {(): {"sum": 5}}


@pytest.mark.core
def test_an_event_falls_into_every_sliding_window_that_covers_it(workspace):
    spec = StateSpec("views", key={"start": "timestamptz"}, measures={"count": Count()})
    events = Stream.read(JsonFiles(workspace.input, schema="at timestamp"))
    workspace.land("1.json", {"at": "2024-01-01T01:20:00Z"}, {"at": "2024-01-01T01:00:00Z"})

    windows = events.each(start=sliding("at", "1 hour", "30 minutes"))
    workspace.run(Pipeline("p", [windows.group_by("start").persistent_aggregate(spec)]))

    assert {start[11:16]: value["count"] for start, value in workspace.values("views").items()} == {
        "00:30": 2,
        "01:00": 2,
    }
