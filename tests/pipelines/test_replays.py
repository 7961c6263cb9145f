"""Replays through Spark: whatever a failed attempt wrote and its replay contains, every tuple counts once."""

import os
import time
from dataclasses import replace

import pytest

from tests.pipelines.fault_injection import FaultAfterCheck, InjectedFault
from tidegauge.pipelines.declare.pipeline import Pipeline
from tidegauge.pipelines.declare.stream import Stream
from tidegauge.pipelines.sources.files.formats import TextFiles
from tidegauge.state_backends import Count, StateSpec
from tidegauge.state_backends.errors import InputChangedError

pytestmark = pytest.mark.spark

WORDS = StateSpec("words", key={"word": "text"}, measures={"count": Count()}, changelog=True)
LINES = StateSpec("lines", measures={"count": Count()})


class EditedFiles(TextFiles):
    """Files that are rewritten: a replay may contain other lines."""

    spout = "opaque"


def words_and_lines(folder, source=EditedFiles, fault=None, files_per_batch=1, kind="opaque"):
    """Two states; the second fails while `fault` is not empty, after the first has written."""

    def fail(lines):
        if fault:
            raise InjectedFault(fault.pop())
        return lines

    lines = Stream.read(source(folder, files_per_batch=files_per_batch))
    words = lines.each(word="explode(split(line, ' '))").group_by("word").persistent_aggregate(WORDS)
    # None of the new values is counted, but reading them makes the second state's job run after the first one's.
    after_words = words.new_values_stream().where("false").transform(fail)
    return Pipeline("words", [lines.merge(after_words).persistent_aggregate(replace(LINES, kind=kind))])


def forget_last_plan(workspace, batch_id, *, log=True):
    """Leave the checkpoint as a power cut does that takes the last batch's files: Spark plans that batch again."""
    for folder in ("offsets", "commits", *(["sources/0"] if log else [])):
        for path in ((workspace.checkpoint / folder / name) for name in (f"{batch_id}", f".{batch_id}.crc")):
            path.unlink(missing_ok=True)


def counts(workspace):
    return {word: value["count"] for word, value in workspace.values("words").items()}


@pytest.mark.core
def test_a_key_that_the_failed_attempt_wrote_and_the_replay_lacks_is_not_counted_twice(workspace):
    """Trident's opaque map counts 3 here; 2 is right."""
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input))
    second = workspace.land("2.txt", "dog cat")
    with pytest.raises(InjectedFault):
        workspace.run(words_and_lines(workspace.input, fault=FaultAfterCheck(skip=1)))
    failed_attempt = workspace.rows("SELECT count, txid FROM tidegauge_state.words WHERE word = 'dog'")
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
    assert workspace.rows("SELECT count FROM tidegauge_changelog.words WHERE word = 'dog' ORDER BY txid") == [
        (1,),
        (2,),
    ]


def test_a_new_key_of_a_failed_attempt_is_removed_if_the_replay_lacks_it(workspace):
    only = workspace.land("1.txt", "ghost cat")
    with pytest.raises(InjectedFault):
        workspace.run(words_and_lines(workspace.input, fault=FaultAfterCheck(skip=1)))

    only.write_text("cat cat\n")
    workspace.run(words_and_lines(workspace.input))

    assert counts(workspace) == {"cat": 2}
    assert workspace.rows("SELECT word FROM tidegauge_state.words") == [("cat",)]


@pytest.mark.core
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


@pytest.mark.core
def test_a_committed_transactional_batch_is_skipped_when_it_is_replayed(workspace):
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input, source=TextFiles))
    workspace.forget_last_commit()

    batches = workspace.run(words_and_lines(workspace.input, source=TextFiles))

    assert batches == []
    assert counts(workspace) == {"dog": 1, "cat": 1}


def test_a_batch_whose_entry_in_the_log_of_files_was_compacted_is_still_the_same(workspace):
    """Every tenth entry of Spark's log repeats all before it."""
    for number in range(10):
        workspace.land(f"{number}.txt", "dog")
    workspace.run(words_and_lines(workspace.input, source=TextFiles))
    workspace.forget_last_commit()

    batches = workspace.run(words_and_lines(workspace.input, source=TextFiles))

    assert (workspace.checkpoint / "sources" / "0" / "9.compact").exists()
    assert batches == []
    assert counts(workspace) == {"dog": 10}


def test_entries_of_the_log_of_files_go_soon_after_a_compact_one_has_repeated_them(workspace):
    """Spark lists the log in every batch, so entries kept for minutes slow down a busy pipeline."""
    log = workspace.checkpoint / "sources" / "0"
    workspace.spark.conf.set("spark.sql.streaming.minBatchesToRetain", "2")
    try:
        for first, last in ((0, 10), (10, 12)):
            for number in range(first, last):
                workspace.land(f"{number}.txt", "dog")
            workspace.run(words_and_lines(workspace.input, source=TextFiles))
            for entry in log.iterdir():
                a_minute_ago = time.time() - 60
                os.utime(entry, (a_minute_ago, a_minute_ago))
    finally:
        workspace.spark.conf.unset("spark.sql.streaming.minBatchesToRetain")

    assert {entry.name for entry in log.iterdir() if not entry.name.startswith(".")} == {"9.compact", "10", "11"}
    assert counts(workspace) == {"dog": 12}


@pytest.mark.parametrize("log", [True, False], ids=["without the log of files", "with the log of files"])
def test_a_committed_batch_that_is_planned_again_with_more_files_counts_all_of_them(workspace, log):
    """Skipped by its number, the batch's new file would never be counted."""
    workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input, source=TextFiles))
    workspace.land("2.txt", "dog cow")
    workspace.run(words_and_lines(workspace.input, source=TextFiles))
    forget_last_plan(workspace, 1, log=log)
    workspace.land("3.txt", "cow")

    batches = workspace.run(words_and_lines(workspace.input, source=TextFiles, files_per_batch=2))

    assert batches == [(2, 2)]
    assert counts(workspace) == {"dog": 2, "cat": 1, "cow": 2}
    assert workspace.values("lines") == {(): {"count": 3}}
    assert workspace.rows("SELECT txid, files FROM tidegauge.input_file ORDER BY txid") == [
        (1, {"1.txt": 1_700_000_000_000}),
        (2, {"2.txt": 1_700_000_001_000, "3.txt": 1_700_000_002_000}),
    ]


def test_a_committed_batch_with_other_files_is_refused_where_a_state_cannot_be_reverted(workspace):
    workspace.land("1.txt", "dog")
    workspace.run(words_and_lines(workspace.input, source=TextFiles, kind="transactional"))
    forget_last_plan(workspace, 0)
    workspace.land("2.txt", "cat")

    with pytest.raises(InputChangedError, match=r"batch 1 comes again .*additional: '2.txt'.*'state lines'"):
        workspace.run(words_and_lines(workspace.input, source=TextFiles, kind="transactional", files_per_batch=2))

    assert counts(workspace) == {"dog": 1}


def test_a_file_that_was_rewritten_after_its_batch_was_counted_is_counted_as_it_is_now(workspace):
    first = workspace.land("1.txt", "dog cat")
    workspace.run(words_and_lines(workspace.input, source=TextFiles))
    workspace.forget_last_commit()

    first.write_text("cat\n")
    batches = workspace.run(words_and_lines(workspace.input, source=TextFiles))

    assert batches == [(1, 2)]
    assert counts(workspace) == {"cat": 1}


def test_a_batch_with_nothing_for_a_state_leaves_that_state_as_it_is(workspace):
    workspace.land("1.txt", "dog")
    workspace.land("2.txt", "", "  ")

    batches = workspace.run(words_and_lines(workspace.input))

    assert batches == [(1, 1), (2, 1)]
    assert counts(workspace) == {"dog": 1}
    assert workspace.values("lines") == {(): {"count": 1}}
