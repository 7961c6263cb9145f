import pytest

from tidegauge.state_backends.errors import RevisionError, TruncatedError
from tidegauge.state_backends.synchronizer import revisioned_stream


def records(entries):
    return [entry.record for entry in entries]


@pytest.fixture
def letters(stream):
    """A log of five records."""
    for letter in "abcde":
        stream.write(letter)
    return stream


def test_a_write_returns_the_revision_after_it(stream):
    assert [stream.write("a"), stream.write_conditionally(1, "b"), stream.write("c")] == [1, 2, 3]


def test_a_conditional_write_fails_where_the_log_has_moved_on(letters):
    assert letters.write_conditionally(4, "late") is None
    assert letters.write_conditionally(6, "early") is None
    assert records(letters.read_from(0)) == [*"abcde"]


def test_entries_carry_the_revision_to_continue_from(letters):
    [first, second, *_] = letters.read_from(1)

    assert (first.revision, first.record) == (2, "b")
    assert records(letters.read_from(second.revision)) == ["d", "e"]


def test_reading_goes_page_by_page_and_leaves_nothing_out(letters, monkeypatch):
    monkeypatch.setattr(revisioned_stream, "PAGE_RECORDS", 2)

    assert records(letters.read_from(0)) == [*"abcde"]
    assert records(letters.read_range(1, 4)) == [*"bcd"]


def test_an_open_reader_fails_at_the_first_truncated_record(letters, monkeypatch, name):
    monkeypatch.setattr(revisioned_stream, "PAGE_RECORDS", 2)
    behind, ahead = letters.read_from(0), letters.read_from(3)
    assert (next(behind).record, next(ahead).record) == ("a", "d")

    letters.truncate(3)

    assert next(behind).record == "b"  # its page had been read
    with pytest.raises(TruncatedError) as caught:
        next(behind)
    assert next(ahead).record == "e"
    assert str(caught.value) == f"log {name!r}: revision 2 was truncated, the oldest is 3; read again from the mark"


def test_a_range_must_lie_in_the_log_and_run_forward(letters, name):
    with pytest.raises(RevisionError) as reversed_range:
        letters.read_range(3, 2)
    with pytest.raises(RevisionError) as beyond:
        list(letters.read_range(3, 9))

    assert records(letters.read_range(3, 3)) == []
    assert str(reversed_range.value) == f"log {name!r}: a range cannot start at 3 and end at 2"
    assert str(beyond.value) == f"log {name!r}: it ends at revision 5, before 9"


def test_the_mark_is_set_moved_back_and_cleared_by_compare_and_set(letters):
    moves = [(None, 3), (None, 4), (3, 4), (4, 2), (2, None)]

    assert [letters.compare_and_set_mark(*move) for move in moves] == [True, False, True, True, True]
    assert letters.head().mark is None


def test_truncation_drops_records_and_never_moves_back(letters):
    assert [letters.truncate(revision) for revision in (2, 1, 99)] == [2, 0, 3]
    assert (letters.head().oldest, letters.head().revision) == (5, 5)
    assert letters.write("f") == 6
    assert records(letters.read_from(5)) == ["f"]


@pytest.mark.parametrize("record", [None, 1.0, '\x00 " ü', {"b": 1, "a": [True, None]}, 12345678901234567890])
def test_a_record_is_read_as_it_was_written(stream, record):
    stream.write(record)

    [read] = records(stream.read_from(0))

    assert (read, type(read)) == (record, type(record))
