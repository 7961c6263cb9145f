"""Replays through Spark: whatever a failed attempt wrote and its replay contains, every tuple counts once."""

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
    """Files that are rewritten: a replay may contain other lines."""

    spout = "opaque"


def words_and_lines(folder, source=EditedFiles, fault=None):
    """Two states; the second fails while `fault` is not empty, after the first has written."""

    def fail(lines):
        if fault:
            raise InjectedFault(fault.pop())
        return lines

    lines = Stream.read(source(folder, files_per_batch=1))
    words = lines.each(word="explode(split(line, ' '))").group_by("word").persistent_aggregate(WORDS)
    # None of the new values is counted, but reading them makes the second state's job run after the first one's.
    after_words = words.new_values_stream().where("false").transform(fail)
    return Pipeline("words", [lines.merge(after_words).persistent_aggregate(LINES)])


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


def test_a_key_that_the_failed_attempt_wrote_and_the_replay_lacks_is_not_counted_twice(workspace):
    """Trident's opaque map counts 3 here; 2 is right."""
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input))
    second = workspace.land("2.txt", "dog cat")
    with pytest.raises(InjectedFault):
        workspace.run(words_and_lines(workspace.input, fault=FaultAfterCheck(skip=1)))
    failed_attempt = workspace.rows("SELECT count, txid FROM tidemark_state.words WHERE word = 'dog'")
    committed_then = counts(workspace)

    second.write_text("cat\n")
    replayed = workspace.run(words_and_lines(workspace.input))
    after_replay = counts(workspace)
    workspace.land("3.txt", "dog")
    workspace.run(words_and_lines(workspace.input))

    assert failed_attempt == [(2, 2)]
    assert committed_then == {"dog": 1, "cat": 1}
    assert replayed == [(2, 2)]
    assert after_replay == {"dog": 1, "cat": 2}
    assert counts(workspace) == {"dog": 2, "cat": 2}
    assert workspace.rows("SELECT count FROM tidemark_changelog.words WHERE word = 'dog' ORDER BY txid") == [(1,), (2,)]


def test_a_new_key_of_a_failed_attempt_is_removed_if_the_replay_lacks_it(workspace):
    only = workspace.land("1.txt", "ghost cat")
    with pytest.raises(InjectedFault):
        workspace.run(words_and_lines(workspace.input, fault=FaultAfterCheck(skip=1)))

    only.write_text("cat cat\n")
    workspace.run(words_and_lines(workspace.input))

    assert counts(workspace) == {"cat": 2}
    assert workspace.rows("SELECT word FROM tidemark_state.words") == [("cat",)]


def test_a_committed_opaque_batch_counts_what_its_replay_contains(workspace):
    workspace.land("1.txt", "dog cat")
    last = workspace.land("2.txt", "dog cow")
    workspace.run(words_and_lines(workspace.input))
    workspace.forget_last_commit()

    last.write_text("cat\ncat\n")
    batches = workspace.run(words_and_lines(workspace.input))

    assert batches == [(2, 2)]
    assert counts(workspace) == {"dog": 1, "cat": 3}
    assert workspace.values("lines") == {(): {"count": 3}}


def test_a_committed_transactional_batch_is_skipped_when_it_is_replayed(workspace):
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
