"""Replays through Spark: whatever a failed attempt wrote and its replay brings, every tuple counts once."""

import pytest

from pipelines.pipeline import Pipeline
from pipelines.sources.files import TextFiles
from pipelines.stream import Stream
from state_backends import Count, StateSpec
from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault

pytestmark = pytest.mark.spark

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, changelog=True)
LINES = StateSpec("lines", measures={"count": Count()})


class EditedFiles(TextFiles):
    """Files that somebody rewrites: a replay may bring other lines."""

    spout = "opaque"


def words_and_lines(folder, source=EditedFiles, accident=None):
    """Two states; the second fails while `accident` holds something, when the first has written already."""

    def strike(lines):
        if accident:
            raise InjectedFault(accident.pop())
        return lines

    lines = Stream.read(source(folder, files_per_batch=1))
    words = lines.each(word="explode(split(line, ' '))").group_by("word").persistent_aggregate(WORDS)
    # Nothing of the new values is counted, but they put the second state's job behind the first one's.
    behind = words.new_values_stream().where("false").transform(strike)
    return Pipeline("words", [lines.merge(behind).persistent_aggregate(LINES)])


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def test_a_key_that_the_failed_attempt_wrote_and_the_replay_lacks_is_not_counted_twice(workspace):
    """The hole of Trident's opaque map (its row would say 3 in the end, the truth is 2)."""
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input))
    second = workspace.land("2.txt", "dog cat")
    with pytest.raises(InjectedFault):
        workspace.run(words_and_lines(workspace.input, accident=FaultAfterCheck(skip=1)))
    failed_attempt = workspace.rows("SELECT count, txid FROM tidemark_state.words WHERE word = 'dog'")
    seen_meanwhile = counts(workspace)

    second.write_text("cat\n")
    replayed = workspace.run(words_and_lines(workspace.input))
    after_replay = counts(workspace)
    workspace.land("3.txt", "dog")
    workspace.run(words_and_lines(workspace.input))

    assert failed_attempt == [(2, 2)]
    assert seen_meanwhile == {"dog": 1, "cat": 1}
    assert replayed == [(2, 2)]
    assert after_replay == {"dog": 1, "cat": 2}
    assert counts(workspace) == {"dog": 2, "cat": 2}
    assert workspace.rows("SELECT count FROM tidemark_changelog.words WHERE word = 'dog' ORDER BY txid") == [(1,), (2,)]


def test_a_first_ever_write_of_a_failed_attempt_goes_when_the_replay_is_empty_of_it(workspace):
    only = workspace.land("1.txt", "ghost cat")
    with pytest.raises(InjectedFault):
        workspace.run(words_and_lines(workspace.input, accident=FaultAfterCheck(skip=1)))

    only.write_text("cat cat\n")
    workspace.run(words_and_lines(workspace.input))

    assert counts(workspace) == {"cat": 2}
    assert workspace.rows("SELECT word FROM tidemark_state.words") == [("cat",)]


def test_an_opaque_batch_that_was_committed_and_comes_again_counts_as_it_comes_this_time(workspace):
    workspace.land("1.txt", "dog cat")
    last = workspace.land("2.txt", "dog cow")
    workspace.run(words_and_lines(workspace.input))
    workspace.forget_last_commit()

    last.write_text("cat\ncat\n")
    batches = workspace.run(words_and_lines(workspace.input))

    assert batches == [(2, 2)]
    assert counts(workspace) == {"dog": 1, "cat": 3}
    assert workspace.values("lines") == {(): {"count": 3}}


def test_a_transactional_batch_that_was_committed_and_comes_again_is_skipped(workspace):
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input, source=TextFiles))
    workspace.forget_last_commit()

    batches = workspace.run(words_and_lines(workspace.input, source=TextFiles))

    assert batches == []
    assert counts(workspace) == {"dog": 1, "cat": 1}


def test_a_batch_with_nothing_for_a_state_leaves_that_state_as_it_is(workspace):
    workspace.land("1.txt", "dog")
    workspace.land("2.txt", "", "  ")

    batches = workspace.run(words_and_lines(workspace.input))

    assert batches == [(1, 1), (2, 1)]
    assert counts(workspace) == {"dog": 1}
    assert workspace.values("lines") == {(): {"count": 1}}
